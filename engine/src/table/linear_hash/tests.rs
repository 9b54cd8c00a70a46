//! The table against an ordered map, with few buckets and with hashes that all collide.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use proptest::prelude::*;

type Table = LinearHash<3, 2, 6, 4>;
type Model = BTreeMap<(u64, u32), [u32; 3]>;

fn sorted(table: &Table, pages: &Pages) -> Model {
    let mut found = Model::new();
    table.for_each(pages, |hash, tag, row| assert!(found.insert((hash, tag), *row).is_none()));
    found
}

/// Checks I1 to I4.
fn check(table: &Table, pages: &Pages) {
    let mut seen = BTreeSet::new();
    let mut len = 0;
    let mut slots_by_size = [0_usize; 3];
    for bucket_number in 0..table.directory.buckets() {
        let first = table.directory.first(pages, bucket_number);
        let mut address = first;
        while address != Address::NONE {
            let slot = pages.words(address);
            assert!(seen.insert(address.0), "a slot is in one chain once");
            assert_eq!(bucket(slot), bucket_number);
            assert!(count(slot) == 6 || address == first && (1..6).contains(&count(slot)));
            for &remainder in remainders(slot) {
                assert_eq!(table.directory.bucket_of(hash_of(bucket_number, remainder)), bucket_number);
            }
            slots_by_size[(count(slot) - 1) / 2] += 1;
            len += count(slot) as u64;
            address = next(slot);
        }
    }
    assert_eq!(len, table.len());
    let mut pages_needed = 1 + table.directory.buckets() as usize / crate::table::page::PAGE_WORDS;
    for (at, slots) in slots_by_size.iter().enumerate() {
        let per_page = crate::table::page::PAGE_WORDS / table.stacks[at].words();
        pages_needed += slots.div_ceil(per_page);
    }
    assert_eq!(pages.in_use(), pages_needed);
    let buckets = u64::from(table.directory.buckets());
    assert!(len <= buckets * 4 && (buckets == u64::from(BUCKETS_MIN) || len >= buckets * 2));
}

#[derive(Clone, Debug)]
enum Step {
    Insert { hash: u64, tags: u32, word: u32 },
    Remove { at: usize, entries: usize },
    RemoveWhere { modulus: u64, rest: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Half of the hashes differ in their upper bits only, so their bucket never splits.
    let hash = prop_oneof![0..1_u64 << HASH_BITS, (0..512_u64).prop_map(|upper| upper << 26 | 77)];
    let step = prop_oneof![
        8 => (hash, 1..16_u32, any::<u32>()).prop_map(|(hash, tags, word)| Step::Insert { hash, tags, word }),
        2 => (any::<usize>(), 1..40_usize).prop_map(|(at, entries)| Step::Remove { at, entries }),
        1 => (1..4_u64, 0..4_u64).prop_map(|(modulus, rest)| Step::RemoveWhere { modulus, rest }),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn it_is_an_ordered_map(steps in steps()) {
        let mut pages = Pages::new();
        let mut table = Table::new(&mut pages);
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Insert { hash, tags, word } => {
                    for tag in 0..tags {
                        let row = [word, word ^ tag, tag];
                        let old = model.insert((hash, tag), row);
                        if let Some(position) = table.find(&pages, hash, tag) {
                            prop_assert_eq!(Some(*table.row(&pages, position)), old);
                            *table.row_mut(&mut pages, position) = row;
                        } else {
                            prop_assert!(old.is_none());
                            table.insert(&mut pages, hash, tag, &row);
                        }
                    }
                    let tags = (0..16).filter(|tag| model.contains_key(&(hash, *tag)));
                    prop_assert_eq!(table.tags(&pages, hash), tags.fold(0, |tags, tag| tags | 1 << tag));
                }
                Step::Remove { at, entries } => {
                    for _ in 0..entries.min(model.len()) {
                        let (&(hash, tag), _) = model.iter().nth(at % model.len()).unwrap();
                        let row = model.remove(&(hash, tag)).unwrap();
                        let position = table.find(&pages, hash, tag).unwrap();
                        prop_assert_eq!(*table.row(&pages, position), row);
                        table.remove(&mut pages, position);
                        prop_assert!(table.find(&pages, hash, tag).is_none());
                    }
                }
                Step::RemoveWhere { modulus, rest } => {
                    let is_gone = |hash: u64| hash % modulus == rest;
                    let mut removed = Model::new();
                    table.remove_where(&mut pages, (0, 1), is_gone, |hash, tag, row| {
                        assert!(removed.insert((hash, tag), *row).is_none());
                    });
                    let gone: Model =
                        model.iter().filter(|((hash, _), _)| is_gone(*hash)).map(|(k, v)| (*k, *v)).collect();
                    prop_assert_eq!(&removed, &gone);
                    model.retain(|(hash, _), _| !is_gone(*hash));
                }
            }
        }
        check(&table, &pages);
        prop_assert_eq!(sorted(&table, &pages), model);
    }
}

#[test]
fn an_emptied_table_holds_its_directory_and_nothing_else() {
    let mut pages = Pages::new();
    let mut table = Table::new(&mut pages);
    let at_start = pages.in_use();
    for entry in 0..20_000_u64 {
        table.insert(&mut pages, entry * 1_000_003 % (1 << HASH_BITS), 0, &[1, 2, 3]);
    }
    check(&table, &pages);
    for entry in 0..20_000_u64 {
        let position = table.find(&pages, entry * 1_000_003 % (1 << HASH_BITS), 0).unwrap();
        table.remove(&mut pages, position);
        if entry.is_multiple_of(5000) {
            check(&table, &pages);
        }
    }
    assert_eq!(table.directory.buckets(), BUCKETS_MIN);
    assert_eq!(pages.in_use(), at_start);
}

#[test]
fn each_entry_is_picked_about_as_often_as_the_others() {
    let mut pages = Pages::new();
    let mut table = Table::new(&mut pages);
    assert!(table.pick(&pages, &mut || 0).is_none());
    // Buckets of one entry and a bucket of ten.
    for entry in 0..40_u64 {
        table.insert(&mut pages, entry, 0, &[entry as u32; 3]);
    }
    for tag in 1..10 {
        table.insert(&mut pages, 5, tag, &[100 + tag; 3]);
    }
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) ^ (state << 32)
    };
    let mut times = BTreeMap::new();
    for _ in 0..49_000 {
        let (hash, tag, position) = table.pick(&pages, &mut random).unwrap();
        assert_eq!(table.find(&pages, hash, tag).map(|p| p.at), Some(position.at));
        *times.entry((hash, tag)).or_insert(0) += 1;
    }
    assert_eq!(times.len(), 49);
    assert!(times.values().all(|&times| (800..1200).contains(&times)), "{times:?}");
}
