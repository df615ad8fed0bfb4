//! The models, by what they show.

mod collectives;
pub(crate) mod faults;
pub(crate) mod groups;
mod pairs;
mod regions;
mod single_copy;
pub(crate) mod threads;
pub(crate) mod watch;

use crate::model::Model;

/// All models.
pub(crate) fn all() -> Vec<Model> {
    [
        collectives::models(),
        pairs::models(),
        faults::models(),
        regions::models(),
        groups::models(),
        single_copy::models(),
        threads::models(),
        watch::models(),
    ]
    .concat()
}
