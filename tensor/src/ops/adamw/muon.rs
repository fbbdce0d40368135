//! Muon (Jordan 2024, <https://kellerjordan.github.io/posts/muon/>): a matrix moves by its momentum made nearly orthogonal,
//! so that all directions of a step have about the same length, not only those that gradients favour.
//!
//! ```text
//! m = momentum m + (1 - momentum) g                        g is clipped as in AdamW
//! X = n / |n|    with n = momentum m + (1 - momentum) g    (Nesterov)
//! X = (a I + b G + c G^2) X    with G = X X^T              five times; X^T X if there are fewer columns than rows
//! value = (1 - lr weight_decay) value - lr sqrt(max(1, rows / columns)) X
//! ```
//!
//! The five polynomials commute with G, so only their product is multiplied with `n`, and everything else has the size of
//! the shorter axis. All matrices of an arena share each dispatch.

use std::ops::Range;

use super::{AdamW, GROUP, ParameterArena, Parameters};
use crate::gpu::{Bind, Groups, Kernel, params};
use crate::{Indices, Tensor};

const DIRECT: Kernel = Kernel::new("muon", "direct");
const GRAM: Kernel = Kernel::new("muon", "gram");
const NORMALISE: Kernel = Kernel::new("muon", "normalise");
const PRODUCT: Kernel = Kernel::new("muon", "product");
const UPDATE: Kernel = Kernel::new("muon", "update");

/// The number of polynomials, and their coefficients a, b and c. They bring singular values from 0.01 to 1 to between 0.7
/// and 1.2.
const ROUNDS: usize = 5;
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// The settings of an update of matrices with Muon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// Learning rate: about the length of the step in each direction.
    pub lr: f64,
    /// Decay of the mean of gradients.
    pub momentum: f64,
}

/// The matrices of an arena, as the kernels see them.
#[derive(Default)]
struct MatrixTable {
    /// six numbers for each
    entries: Vec<u32>,
    /// vec4s of all square matrices
    square: usize,
    /// workgroups of launches over square matrices, and over whole ones
    groups: [usize; 2],
    /// multiplications of a product of square matrices, and of one with the whole matrices
    work: [usize; 2],
}

impl MatrixTable {
    fn add(&mut self, offset: usize, rows: usize, columns: usize) {
        let entry = [
            offset,
            rows,
            columns,
            self.square,
            self.groups[0],
            self.groups[1],
        ];
        self.entries.extend(entry.map(|number| number as u32));
        let (side, length) = (rows.min(columns), rows.max(columns));
        let (quads, blocks) = (side.div_ceil(4), length.div_ceil(4));
        self.square += 4 * quads * quads;
        self.groups[0] += (quads * quads).div_ceil(GROUP);
        self.groups[1] += (quads * blocks).div_ceil(GROUP);
        self.work[0] += side * side * side;
        self.work[1] += side * side * length;
    }

    fn count(&self) -> usize {
        self.entries.len() / 6
    }
}

impl Parameters {
    /// Makes an update as [`Parameters::step`] does, but with Muon for the tensors whose names `is_matrix` picks. They keep
    /// their momentum in the first moment and do not use the second. Clipping and weight decay are those of AdamW.
    ///
    /// # Panics
    /// If `is_matrix` picks a tensor that does not have two axes.
    #[track_caller]
    pub fn step_muon(
        &mut self,
        muon: Muon,
        others: AdamW,
        is_matrix: impl Fn(&str) -> bool,
    ) -> Tensor {
        self.steps += u64::from(!self.gpu.has_failed());
        let norm = self.norm();
        for (index, arena) in self.arenas.iter().enumerate() {
            let mut table = MatrixTable::default();
            // Neighbouring tensors of one kind share a dispatch.
            let mut ranges: Vec<(bool, Range<usize>)> = Vec::new();
            for slot in self.slots.iter().filter(|slot| slot.arena == index) {
                let is_matrix = is_matrix(&slot.name);
                if is_matrix {
                    let &[rows, columns] = slot.leaf.shape() else {
                        panic!(
                            "step_muon: {} has the shape {:?}, and Muon needs a matrix",
                            slot.name,
                            slot.leaf.shape()
                        );
                    };
                    table.add(slot.range.start, rows, columns);
                }
                match ranges.last_mut() {
                    Some((kind, range)) if *kind == is_matrix => range.end = slot.range.end,
                    _ => ranges.push((is_matrix, slot.range.clone())),
                }
            }
            let directions = Tensor::empty(&self.gpu, &[arena.values.len()]);
            for (is_matrix, range) in ranges {
                match is_matrix {
                    true => arena.direct(range, muon, others, &directions, &norm),
                    false => arena.update(range, others, self.steps, &norm),
                }
            }
            if table.count() > 0 {
                arena.move_matrices(&table, muon, others, &directions, &norm);
            }
        }
        norm
    }
}

impl ParameterArena {
    /// Writes the directions of a range: its momentum, one step ahead.
    fn direct(
        &self,
        range: Range<usize>,
        muon: Muon,
        others: AdamW,
        directions: &Tensor,
        norm: &Tensor,
    ) {
        let params = params! {
            count: u32 = range.len(),
            max_norm: f32 = others.max_norm.min(1e30),
            momentum: f32 = muon.momentum,
            one_minus_momentum: f32 = 1.0 - muon.momentum,
            // Of the other kernels.
            rest: [f32; 5] = [0f32; 5],
        };
        let groups = Groups::of(range.len(), GROUP);
        let part = |tensor: &Tensor| tensor.window(range.clone());
        let (gradients, moment) = (part(&self.gradients), part(&self.first_moment));
        let directions = part(directions);
        let buffers: [&dyn Bind; 4] = [&gradients, &moment, &directions, norm];
        DIRECT.launch(&[], &buffers, &params, groups);
    }

    /// Moves the matrices of a table against their orthogonal directions.
    fn move_matrices(
        &self,
        table: &MatrixTable,
        muon: Muon,
        others: AdamW,
        directions: &Tensor,
        norm: &Tensor,
    ) {
        let gpu = norm.gpu();
        let [a, b, c] = COEFFICIENTS;
        let params = |[identity, linear, square]: [f64; 3]| {
            params! {
                count: u32 = table.count(),
                // Of `direct`.
                rest: [f32; 3] = [0f32; 3],
                identity: f32 = identity,
                linear: f32 = linear,
                square: f32 = square,
                rate: f32 = muon.lr,
                decay: f32 = 1.0 - muon.lr * others.weight_decay,
            }
        };
        let matrices = Indices::new(gpu, &table.entries);
        let squares = Groups::count(table.groups[0]);
        let empty = || Tensor::empty(gpu, &[4 * table.square]);
        let none = params([0.0; 3]);

        let raw = empty();
        let buffers: [&dyn Bind; 3] = [&matrices, directions, &raw];
        GRAM.launch(&[], &buffers, &none, squares.work(2 * table.work[1] as u64));

        let (mut gram, scales) = (empty(), Tensor::empty(gpu, &[table.count()]));
        let buffers: [&dyn Bind; 4] = [&matrices, &raw, &gram, &scales];
        NORMALISE.launch(&[], &buffers, &none, squares);

        // factors[0] I + factors[1] right + factors[2] left right
        let product = |factors: [f64; 3], left: &Tensor, right: &Tensor| {
            let result = empty();
            let buffers: [&dyn Bind; 4] = [&matrices, left, &result, right];
            let groups = squares.work(2 * table.work[0] as u64);
            PRODUCT.launch(&[], &buffers, &params(factors), groups);
            result
        };
        let times = [0.0, 0.0, 1.0];
        let mut polynomial: Option<Tensor> = None;
        for round in 0..ROUNDS {
            let next = product([a, b, c], &gram, &gram);
            if round + 1 < ROUNDS {
                gram = product(times, &next, &product(times, &next, &gram));
            }
            polynomial = Some(match polynomial {
                Some(before) => product(times, &next, &before),
                None => next,
            });
        }
        let polynomial = polynomial.expect("at least one round");

        let buffers: [&dyn Bind; 6] = [
            &matrices,
            directions,
            &self.values,
            &polynomial,
            &scales,
            norm,
        ];
        let groups = Groups::count(table.groups[1]).work(2 * table.work[1] as u64);
        UPDATE.launch(&[], &buffers, &none, groups);
    }
}
