//! The ops, a file each: formula, shape rule, launch with its gradient, f64 reference, properties.

mod binary;
mod reduce;
mod unary;
