//! What the models run on. A file uses only files above it in this list.

pub(crate) mod trace;

pub(crate) mod word;

pub(crate) mod atomic_cells;
pub(crate) mod cells;
pub(crate) mod waiting;

pub(crate) mod machine;
pub(crate) mod sites;

pub(crate) mod mutant;

pub(crate) mod channel_memory;
pub(crate) mod search;
pub(crate) mod segment;
pub(crate) mod symmetric;

pub(crate) mod correspondent;
pub(crate) mod data;
pub(crate) mod known_bad;
pub(crate) mod rank;
pub(crate) mod ring;
pub(crate) mod threads;

pub(crate) mod actor;
pub(crate) mod post;

pub(crate) mod one_sided;
pub(crate) mod stranger;

pub(crate) mod record;
pub(crate) mod verdict;

pub(crate) mod model;
pub(crate) mod readme;
pub(crate) mod report;

pub(crate) mod apart;
