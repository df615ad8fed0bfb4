//! The models, by what they show.

mod collectives;

use crate::model::Model;

/// All models.
pub(crate) fn all() -> Vec<Model> {
    [collectives::models()].concat()
}
