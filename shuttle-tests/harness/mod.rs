//! What the models run on. A file uses only files above it in this list.

pub mod breakage;
pub mod choice;
pub mod clock;
pub mod progress;
pub mod schedules;
pub mod sleepers;

pub mod simulation;

pub mod cell;
pub mod shared_cell;
pub mod word;

pub mod ordered_cell;

pub mod platform;
pub mod segment;

pub mod channels;

pub mod script;

pub mod perform;

pub mod started;

pub mod one_sided_rank;
pub mod post_plan;
pub mod ring;
pub mod scenario;

pub mod post_rank;

pub mod deaths;

pub mod one_sided;
pub mod post;
