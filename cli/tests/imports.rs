//! The files of the program import each other in one direction only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path: none for main.rs, `["job", "guard"]` for job/guard.rs.
type Module = Vec<String>;

/// The code of every module that has a file, without its tests and comments.
fn sources(folder: &Path, parent: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut module = parent.clone();
        module.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        if path.is_dir() {
            sources(&path, &module, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap()).collect();
        found.insert(if module == ["main"] { Module::new() } else { module }, lines.join("\n"));
    }
}

/// The paths that begin here, with one for each name of a list in braces.
fn paths(text: &str) -> Vec<Module> {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let ends = match rest.strip_prefix("::") {
        None => return vec![vec![name.to_owned()]],
        Some(rest) => match rest.strip_prefix('{') {
            None => paths(rest),
            Some(list) => items(list).into_iter().flat_map(paths).collect(),
        },
    };
    ends.into_iter().map(|end| [vec![name.to_owned()], end].concat()).collect()
}

/// The items of a list up to its closing brace.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth > 0 => {}
            ',' | '}' => {
                items.push(list[start..at].trim());
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items.retain(|item| !item.is_empty());
    items
}

/// Which modules' files each module's file imports from. A file that declares a module imports it.
fn imports(sources: &BTreeMap<Module, String>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let file_of = |mut path: Module| {
        while !sources.contains_key(&path) {
            path.pop();
        }
        path
    };
    let of_one = |module: &Module, code: &str| {
        let children =
            sources.keys().filter(|other| other.split_last().is_some_and(|(_, parent)| parent == module));
        let mut imported: BTreeSet<Module> = children.cloned().collect();
        for (at, _) in code.match_indices("crate::") {
            imported.extend(paths(&code[at..]).into_iter().map(|path| file_of(path[1..].to_vec())));
        }
        let is_first = |at: usize| !code[..at].ends_with("super::");
        for (at, _) in code.match_indices("super::").filter(|(at, _)| is_first(*at)) {
            for path in paths(&code[at..]) {
                let up = path.iter().take_while(|name| *name == "super").count();
                imported.insert(file_of([&module[..module.len() - up], &path[up..]].concat()));
            }
        }
        imported.remove(module);
        imported
    };
    sources.iter().map(|(module, code)| (module, of_one(module, code))).collect()
}

/// The modules that import each other in a circle, or that import such modules: what is left when those that import
/// none of the rest are taken away, again and again.
fn circular(sources: &BTreeMap<Module, String>) -> Vec<String> {
    let mut rest = imports(sources);
    loop {
        let modules: BTreeSet<Module> = rest.keys().map(|module| (*module).clone()).collect();
        rest.retain(|_, imported| !imported.is_disjoint(&modules));
        if rest.len() == modules.len() {
            return rest.keys().map(|module| module.join("::")).collect();
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut found = BTreeMap::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &Module::new(), &mut found);
    assert!(found.contains_key(&Module::new()), "main.rs is one of {:?}", found.keys());
    assert_eq!(circular(&found), Vec::<String>::new());
}

#[test]
fn circles_are_found() {
    let program = |files: &[(&str, &str)]| -> BTreeMap<Module, String> {
        let module = |path: &str| path.split_terminator("::").map(str::to_owned).collect();
        files.iter().map(|(path, code)| (module(path), (*code).to_owned())).collect()
    };
    let sound = [
        ("", "mod a; mod b;"),
        ("a", "use crate::b::{self, c::D};"),
        ("b", "use c::D;"),
        ("b::c", "struct D;"),
    ];
    assert_eq!(circular(&program(&sound)), Vec::<String>::new());
    for (module, code) in [
        ("b", "use crate::a::A;"),
        ("b", "use std::fs; fn f() { crate::a::f(); }"),
        ("b::c", "use super::B;"),
        ("b::c", "use super::super::{x, a};"),
        ("b::c", "use crate::{\n    x::{y, z},\n    a::A,\n};"),
        ("b::c", "use crate::main;"),
    ] {
        let mut files = program(&sound);
        files.extend(program(&[(module, code)]));
        assert!(circular(&files).contains(&module.to_owned()), "{code} in {module}");
    }
}
