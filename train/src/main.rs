//! lapwing
fn main() {}
