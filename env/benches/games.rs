//! How fast the games are: `cargo bench -p lapwing-env -- snake-standard`.
//!
//! A random player plays episode after episode, their starts included, on one core. `played` only plays; `observed` also
//! asks every agent in every round for what it sees, and for its key. Their throughput is in rounds, whatever the number
//! of agents. `started` only starts episodes, each of a scene of its own.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lapwing_env::{GAMES, Scenario, rng::Stream};

/// Rounds in one measured call.
const ROUNDS: u64 = 5000;

/// Plays this many rounds, in as many episodes as needed.
fn rounds(scenario: &dyn Scenario, seed: u64, observed: bool) {
    let (agents, words) = (scenario.agents(), scenario.actions().len());
    let mut player = Stream::new(seed, "random player");
    let mut actions = vec![None; agents];
    let mut left = ROUNDS;
    for episode in 0.. {
        let scene = (seed << 20) + episode;
        let mut game = scenario.start(scene, scene).expect("built-in games start");
        for _ in 0..scenario.step_limit() {
            if left == 0 {
                return;
            }
            left -= 1;
            for (agent, action) in actions.iter_mut().enumerate() {
                if observed {
                    black_box(game.observe(agent).expect("built-in games continue"));
                    black_box(game.key(agent).expect("built-in games continue"));
                }
                *action = Some(player.below(words));
            }
            let outcomes = game.play(&actions).expect("built-in games continue");
            if outcomes.iter().all(|outcome| outcome.over) {
                break;
            }
        }
    }
}

fn games(c: &mut Criterion) {
    for kind in GAMES {
        let mut group = c.benchmark_group(kind.name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(500));
        let variants = kind.variants.iter();
        let all = variants.map(|variant| (variant.name, (variant.options)()));
        for (name, options) in std::iter::once((kind.name, serde_json::json!({}))).chain(all) {
            let scenario = (kind.configure)(&options).expect("variants can be configured");
            group.throughput(Throughput::Elements(ROUNDS));
            for (what, observed) in [("played", false), ("observed", true)] {
                let mut seed = 0;
                group.bench_function(BenchmarkId::new(what, name), |bencher| {
                    bencher.iter(|| {
                        seed += 1;
                        rounds(&*scenario, seed, observed)
                    })
                });
            }
            group.throughput(Throughput::Elements(1));
            let mut scene = 0;
            group.bench_function(BenchmarkId::new("started", name), |bencher| {
                bencher.iter(|| {
                    scene += 1;
                    scenario.start(scene, scene).expect("built-in games start")
                })
            });
        }
    }
}

criterion_group!(benches, games);
criterion_main!(benches);
