//! The example does what it says.

#[path = "../examples/regression.rs"]
mod regression;

#[test]
fn a_curve_is_learned() {
    let [a, b] = regression::fit().unwrap();
    assert!((a - 2.0).abs() < 0.02 && (b + 1.0).abs() < 0.02, "{a} {b}");
}
