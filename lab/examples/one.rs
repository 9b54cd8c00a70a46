//! One seed, shrunk.
fn main() {
    let mut arguments = std::env::args().skip(1);
    let seed: u64 = arguments.next().unwrap().parse().unwrap();
    let attempts: u32 = arguments.next().unwrap().parse().unwrap();
    let mut options = lab::swarm::Options::draw(seed);
    if let Some(text) = arguments.next() {
        options.change(&text).unwrap();
    }
    let print = arguments.next().is_some();
    let outcome = lab::swarm::run_with(&options, engine::mutation::Mutations::NONE, print);
    let Some(failure) = outcome.failure else {
        println!("ok {:?}", outcome.counts);
        return;
    };
    if attempts == 0 {
        println!("{failure}");
        return;
    }
    println!("{}", lab::swarm::shrink(&failure, engine::mutation::Mutations::NONE, attempts));
}
