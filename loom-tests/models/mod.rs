//! The models, by what they show.

mod collectives;
pub(crate) mod faults;
mod pairs;

use crate::model::Model;

/// All models.
pub(crate) fn all() -> Vec<Model> {
    [collectives::models(), pairs::models(), faults::models()].concat()
}
