//! The example runs and gives the right result.

#[path = "../examples/regression.rs"]
mod regression;

#[test]
fn the_regression_finds_the_curve() {
    let [a, b] = regression::fit().unwrap();
    assert!((a - 2.0).abs() < 0.02 && (b + 1.0).abs() < 0.02, "{a} {b}");
}
