//! The games of a seed never change: reports name scenes and luck by their seeds.

use std::hash::Hasher;

use crate::games::{named, play, random};

/// FNV-1a, which is equal on every machine and in every version.
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Observations, actions and outcomes of a hundred games of a random player and of the scripted one.
#[test]
fn the_games_of_a_seed_stay_the_same() {
    let mut digests = Vec::new();
    for (name, kind, scenario) in named() {
        let number = name[kind.name.len() + 1..].parse::<usize>();
        if number.is_err() {
            continue; // A variant or a probe.
        }
        let mut digest = Digest::default();
        for seed in 0..100 {
            let mut random = random(&*scenario, seed);
            for scripted in [false, true] {
                let mut game = scenario.start(seed, seed + 1).unwrap();
                let rounds = play(&*scenario, &mut *game, |game, agent| {
                    let action = random(game, agent);
                    match game.best_actions(agent) {
                        Some(best) if scripted => action.map(|action| best[action % best.len()]),
                        _ => action,
                    }
                });
                digest.write(format!("{rounds:?} {}", game.key(0).unwrap()).as_bytes());
            }
        }
        digests.push(format!("{name} {:016x}", digest.finish()));
    }
    insta::assert_snapshot!(digests.join("\n"), @r"
    frozen-lake-0 777ac186fd139a48
    frozen-lake-1 069205764b219d3e
    frozen-lake-2 739a3ea8a0852e21
    frozen-lake-3 40fede9335483e7a
    frozen-lake-4 fe5a057a29fb98dd
    snake-0 e3a44191b4bec58e
    snake-1 9a27caff209209cc
    snake-2 7ad7d1a975ef230d
    snake-3 0151122acb19041f
    snake-4 4840eafc28f9066b
    snake-5 3f6a2331acd13b5c
    sokoban-0 8648e3063b10a8ab
    sokoban-1 c33745450ecb0ee9
    sokoban-2 34be35ab3080376f
    rooms-0 a6861dcc06138ce2
    rooms-1 5145e68e1b2b5d12
    rooms-2 1d18d3d95d99a2e5
    rooms-3 9c6d68c1e34938a6
    2048-0 bc8e67fdf63cd95f
    2048-1 4eca81cbad699933
    2048-2 72ff72bb787b36f0
    ");
}

/// The start of a hundred scenes of every variant.
#[test]
fn the_scenes_of_the_variants_stay_the_same() {
    let mut digests = Vec::new();
    for (name, kind, scenario) in named() {
        if kind.variants.iter().all(|variant| variant.name != name) {
            continue;
        }
        let mut digest = Digest::default();
        for scene in 0..100 {
            let game = scenario.start(scene, 0).unwrap();
            digest.write(game.key(0).unwrap().as_bytes());
        }
        digests.push(format!("{name} {:016x}", digest.finish()));
    }
    insta::assert_snapshot!(digests.join("\n"), @r"
    frozen-lake-firm 954d5b98febb76d7
    frozen-lake-slippery 954d5b98febb76d7
    frozen-lake-large 5a5bbbb644a71a52
    frozen-lake-big-slippery 3cd044f48305897b
    frozen-lake-fixed cd6d05c1a9528f4d
    frozen-lake-author-firm 954d5b98febb76d7
    frozen-lake-author-slippery df63d991ae176b59
    snake-standard 066c2ff51cf38d4d
    snake-poison-apple 066c2ff51cf38d4d
    snake-poison-apple-and-banana 72ff3d8430f85a29
    snake-banana f535bf516bd6073f
    snake-downhill 066c2ff51cf38d4d
    snake-greedy-enemy 066c2ff51cf38d4d
    snake-duel 066c2ff51cf38d4d
    snake-alone cdbd0fdac48cbf9e
    snake-small e1bf498bfe4b9635
    sokoban-small 2f352f8bf243bee9
    sokoban-textarena e2953df651d3d8e4
    sokoban-standard cb5661cae2f657fc
    rooms-goto-local aaf269007fda4fba
    rooms-goto-maze a3eb56696bcfd445
    rooms-pickup-loc 0ee54fa2aa870f0d
    rooms-pickup-dist a3af05bd2dd49ec1
    rooms-put-next-local 34fae76c336b476d
    rooms-unlock-local b7520be6f6e7d6c2
    rooms-unlock-pickup f229e53ad7587e12
    rooms-blocked-unlock-pickup 37c4be86a1f49cc2
    rooms-unlock-to-unlock 1d3fb999faee31e2
    2048-small 431b06845db8a15f
    2048-medium 431b06845db8a15f
    2048-standard 431b06845db8a15f
    ");
}
