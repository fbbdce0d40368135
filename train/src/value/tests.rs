//! What must hold of the value learners as a whole.
