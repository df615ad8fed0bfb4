//! The files of a job that its ranks had no time to remove.

use std::fs;
use std::path::Path;

/// Where Linux keeps the names of POSIX shared memory.
const DIRECTORY: &str = "/dev/shm";

/// Removes the job's segment and its regions. Only for a name that the launcher has made up, after all ranks
/// have ended: then nobody else can be using it.
pub(crate) fn remove(name: &str) {
    remove_in(Path::new(DIRECTORY), name);
}

fn remove_in(directory: &Path, name: &str) {
    let Some(name) = name.strip_prefix('/') else {
        return;
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let rest = file.as_encoded_bytes().strip_prefix(name.as_bytes());
        // `name` itself or `name_region_3`, but no longer name that only begins alike.
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"_")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_job_s_own_files_are_removed() {
        let directory = std::env::temp_dir().join(format!("intranode-leftovers-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        for file in ["job-1", "job-1_region_0", "job-12", "other"] {
            fs::write(directory.join(file), []).unwrap();
        }
        remove_in(&directory, "/job-1");
        let mut left: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(left, ["job-12", "other"]);
    }
}
