//! The fields of two JSON files.

use std::path::Path;

use serde_json::Value;

use crate::driver::failure::{Failure, Kind, Outcome};

/// The fields that differ, except those `ignored`.
pub(super) fn differences(
    a: &Path,
    left: &[u8],
    b: &Path,
    right: &[u8],
    ignored: &[&str],
) -> Outcome<Vec<String>> {
    let mut values = [parse(a, left)?, parse(b, right)?];
    for value in &mut values {
        for pointer in ignored {
            if let Some(field) = value.pointer_mut(pointer) {
                *field = Value::Null;
            }
        }
    }
    let mut differences = Vec::new();
    walk("", &values[0], &values[1], &mut differences);
    Ok(differences)
}

fn parse(path: &Path, bytes: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new(Kind::Input, format_args!("{} is no JSON: {error}", path.display())))
}

fn walk(pointer: &str, a: &Value, b: &Value, differences: &mut Vec<String>) {
    if let (Value::Object(a), Value::Object(b)) = (a, b) {
        let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
        for name in names {
            let pointer = format!("{pointer}/{name}");
            match (a.get(name), b.get(name)) {
                (Some(a), Some(b)) => walk(&pointer, a, b, differences),
                _ => differences.push(format!("{pointer} is in one of them only")),
            }
        }
    } else if a != b {
        differences.push(format!("{pointer} is {a} and {b}"));
    }
}
