//! Cobre backend.
