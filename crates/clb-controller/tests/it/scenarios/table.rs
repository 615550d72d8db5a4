//! `tests/scenarios.md` says where each scenario is tested, and this that it is right.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// Where each scenario is tested, or why it is not.
const TABLE: &str = include_str!("../../scenarios.md");
/// The list of all scenarios, where it is at hand.
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/scenarios.md");
/// The crates and the examples.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const GROUPS: [&str; 11] = ["AD", "CC", "EG", "EP", "FN", "MT", "ND", "NW", "RS", "RT", "SL"];

/// The id that a row of a table begins with.
fn id_of(row: &str) -> Option<&str> {
    let id = row.strip_prefix("| ")?.split([' ', '|']).next()?;
    let (group, number) = id.split_once('-')?;
    (GROUPS.contains(&group) && number.parse::<u32>().is_ok()).then_some(id)
}

fn rows() -> Vec<(&'static str, &'static str)> {
    let row = |line: &'static str| Some((id_of(line)?, line.split('|').nth(2)?.trim()));
    TABLE.lines().filter_map(row).collect()
}

/// The tests that a row names: what is set as code and has a path.
fn tests_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|code| code.contains("::"))
}

/// The ids in a test's name: `sl_01`, and all of `sl_01_to_sl_03`.
fn ids_in(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('_').collect();
    let id = |at: usize| {
        let group = parts.get(at)?.to_uppercase();
        let number = parts.get(at + 1).filter(|number| number.len() == 2)?;
        GROUPS.contains(&group.as_str()).then_some((group, number.parse::<u32>().ok()?))
    };
    let mut ids = Vec::new();
    for at in 0..parts.len() {
        let Some((group, first)) = id(at) else { continue };
        let range = parts.get(at + 2).filter(|word| **word == "to").and_then(|_| id(at + 3));
        let last = range.filter(|(of, _)| *of == group).map_or(first, |(_, last)| last);
        ids.extend((first..=last).map(|number| format!("{group}-{number:02}")));
    }
    ids
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// All tests there are, as the table names them: the crate, the modules below its folders of sources or tests, and the function.
fn tests() -> BTreeSet<String> {
    let mut crates: BTreeMap<String, PathBuf> = BTreeMap::new();
    for entry in read_dir(format!("{ROOT}/crates")).unwrap() {
        let path = entry.unwrap().path();
        crates.insert(path.file_name().unwrap().to_string_lossy().into_owned(), path);
    }
    crates.insert("examples".to_owned(), PathBuf::from(format!("{ROOT}/examples")));
    let mut tests = BTreeSet::new();
    for (name, home) in &crates {
        for folder in ["src", "tests"].map(|folder| home.join(folder)) {
            let mut files = Vec::new();
            sources(&folder, &mut files);
            for file in files {
                let module = file.strip_prefix(&folder).unwrap().with_extension("");
                let parts = module.iter().map(|part| part.to_string_lossy());
                let parts: Vec<_> =
                    parts.filter(|part| !["it", "mod", "main", "lib"].contains(&part.as_ref())).collect();
                let path = [&[name.as_str().into()], parts.as_slice()].concat().join("::");
                let text = read_to_string(&file).unwrap();
                tests.extend(functions(&text).into_iter().map(|function| format!("{path}::{function}")));
            }
        }
    }
    tests
}

/// The functions that are tests.
fn functions(text: &str) -> Vec<&str> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")
            && std::mem::take(&mut is_test)
        {
            found.extend(rest.split(['(', '<']).next());
        }
    }
    found
}

#[test]
fn ids_are_sorted_and_each_has_a_test_or_a_reason() {
    let rows = rows();
    assert!(
        rows.windows(2).all(|two| two[0].0 < two[1].0),
        "{:?}",
        rows.windows(2).find(|two| two[0].0 >= two[1].0)
    );
    let empty: Vec<_> = rows.iter().filter(|(_, cell)| cell.is_empty()).collect();
    assert_eq!(empty, Vec::<&(&str, &str)>::new());
}

#[test]
fn every_test_in_the_table_exists() {
    let tests = tests();
    let named = rows().into_iter().flat_map(|(id, cell)| tests_in(cell).map(move |test| (id, test)));
    let missing: Vec<_> = named.filter(|(_, test)| !tests.contains(*test)).collect();
    assert_eq!(missing, Vec::<(&str, &str)>::new());
}

#[test]
fn every_test_named_after_a_scenario_is_in_its_row() {
    let rows: BTreeMap<&str, BTreeSet<&str>> =
        rows().into_iter().map(|(id, cell)| (id, tests_in(cell).collect())).collect();
    let mut missing = Vec::new();
    for test in tests() {
        for id in ids_in(test.rsplit("::").next().unwrap()) {
            if !rows.get(id.as_str()).is_some_and(|named| named.contains(test.as_str())) {
                missing.push((id, test.clone()));
            }
        }
    }
    assert_eq!(missing, Vec::<(String, String)>::new());
}

#[test]
fn every_scenario_is_in_the_table() {
    let Ok(scenarios) = read_to_string(SCENARIOS) else {
        println!("skipped: {SCENARIOS} is not here");
        return;
    };
    let listed: BTreeSet<&str> = scenarios.lines().filter_map(id_of).collect();
    assert!(listed.len() > 250, "only {} scenarios", listed.len());
    let rows: BTreeSet<&str> = rows().into_iter().map(|(id, _)| id).collect();
    assert_eq!(rows, listed);
}

#[test]
fn ranges_and_lists_of_ids_are_read_from_names() {
    let ids = ids_in("ad_01_to_ad_03_and_sl_07_of_10_things_and_rs_2");
    assert_eq!(ids, ["AD-01", "AD-02", "AD-03", "AD-03", "SL-07"]);
    assert_eq!(ids_in("a_service_of_200_is_made"), Vec::<String>::new());
}
