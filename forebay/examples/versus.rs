//! The page and the picture of what `versus/run` measured: `versus FILE FOLDER` reads `FILE` and writes into `FOLDER`.

use anyhow::Context as _;
use lab::versus::{System, page, plot, rates};
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(file), Some(folder)) = (words.next(), words.next()) else {
        anyhow::bail!("say which figures, and where the page goes: versus docs/versus.json docs");
    };
    let figures = std::fs::read_to_string(&file).with_context(|| format!("{file} cannot be read"))?;
    let systems: Vec<System> = serde_json::from_str(&figures)
        .with_context(|| format!("{file} is not what versus/run writes: remove it and measure again"))?;
    let write = |name: &str, content: String| {
        let path = Path::new(&folder).join(name);
        std::fs::write(&path, content).with_context(|| format!("{} cannot be written", path.display()))
    };
    write("versus.md", page(&systems, "make versus"))?;
    write("versus.svg", plot(&systems)?)?;
    print!("{}", rates(&systems));
    Ok(())
}
