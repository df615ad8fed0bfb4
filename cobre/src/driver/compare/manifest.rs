//! The manifests of two policies.

use std::path::Path;

use cobre_io::{CheckpointManifest, deserialize_checkpoint_manifest, serialize_checkpoint_manifest};

use super::first_byte;
use crate::driver::failure::{Failure, Kind, Outcome};

/// Compares everything but the time of writing, by serializing both with the same time.
pub(super) fn differences(a: &Path, left: &[u8], b: &Path, right: &[u8]) -> Outcome<Vec<String>> {
    let [left, right] = [timeless(a, left)?, timeless(b, right)?];
    if left == right {
        return Ok(Vec::new());
    }
    Ok(vec![format!("{}, the times of writing aside", first_byte(&left, &right))])
}

fn timeless(path: &Path, bytes: &[u8]) -> Outcome<Vec<u8>> {
    let manifest = deserialize_checkpoint_manifest(bytes)
        .map_err(|error| Failure::new(Kind::Input, format_args!("{}: {error}", path.display())))?;
    Ok(serialize_checkpoint_manifest(&CheckpointManifest { created_at: String::new(), ..manifest }))
}
