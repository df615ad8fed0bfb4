//! What the sources and the documents promise together.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The sources of the library by path, without what is compiled for tests only.
fn sources() -> BTreeMap<String, String> {
    const TESTS: [&str; 4] = ["tests.rs", "testing.rs", "contract.rs", "programs.rs"];
    let src = root().join("src");
    let (mut found, mut folders) = (BTreeMap::new(), vec![src.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !TESTS.iter().any(|test| path.ends_with(test)) {
                let text = fs::read_to_string(&path).expect("a source is text");
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
                let name = path.strip_prefix(&src).expect("below src").display().to_string();
                found.insert(name, code);
            }
        }
    }
    assert!(found.contains_key("lib.rs"));
    found
}

#[test]
fn one_file_reads_the_environment() {
    let readers: Vec<String> = sources()
        .into_iter()
        .filter(|(_, code)| ["std::env", "env::var", "getenv"].iter().any(|way| code.contains(way)))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(readers, ["job/environment.rs"]);
}
