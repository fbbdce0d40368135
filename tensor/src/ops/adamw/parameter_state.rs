//! Reading and restoring parameters, for adapter files and checkpoints.

use super::{NamedValues, ParameterArena, ParameterSlot, Parameters};
use crate::Tensor;
use crate::gpu::GpuError;

/// A trained tensor with its AdamW moments, as in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterState {
    /// The name.
    pub name: String,
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Vec<f32>,
    /// The mean of gradients.
    pub first_moment: Vec<f32>,
    /// The mean of squared gradients.
    pub second_moment: Vec<f32>,
}

impl Parameters {
    /// Reads the values by name, in the form of [`Parameters::new`]: the contents of an adapter file.
    ///
    /// # Errors
    /// An error of the device.
    pub fn values(&self) -> Result<Vec<NamedValues>, GpuError> {
        let arenas = self.read(|arena| &arena.values)?;
        let one = |slot: &ParameterSlot| {
            (
                slot.name.clone(),
                slot.leaf.shape().to_vec(),
                slot.of(&arenas),
            )
        };
        Ok(self.slots.iter().map(one).collect())
    }

    /// Reads values and moments: together with [`Parameters::steps`] the contents of a checkpoint. Accumulated gradients are
    /// not included.
    ///
    /// # Errors
    /// An error of the device.
    pub fn state(&self) -> Result<Vec<ParameterState>, GpuError> {
        let values = self.read(|arena| &arena.values)?;
        let first = self.read(|arena| &arena.first_moment)?;
        let second = self.read(|arena| &arena.second_moment)?;
        let one = |slot: &ParameterSlot| ParameterState {
            name: slot.name.clone(),
            shape: slot.leaf.shape().to_vec(),
            values: slot.of(&values),
            first_moment: slot.of(&first),
            second_moment: slot.of(&second),
        };
        Ok(self.slots.iter().map(one).collect())
    }

    /// Restores the result of [`Parameters::state`] after `steps` steps. Tensors from [`Parameters::get`] stay valid.
    ///
    /// # Panics
    /// If the names or shapes are not those of these parameters, in this order. The reader of a checkpoint checks this
    /// first, to name the file in its error.
    #[track_caller]
    pub fn restore(&mut self, state: &[ParameterState], steps: u64) {
        assert_eq!(
            state.len(),
            self.slots.len(),
            "restore: number of tensors in the state and in the parameters"
        );
        for (slot, saved) in self.slots.iter().zip(state) {
            assert_eq!(
                (&saved.name, &saved.shape[..]),
                (&slot.name, slot.leaf.shape()),
                "restore: a tensor in the state and in the parameters"
            );
            let arena = &self.arenas[slot.arena];
            let restore = |part: &Tensor, values| part.window(slot.range.clone()).write(values);
            restore(&arena.values, &saved.values);
            restore(&arena.first_moment, &saved.first_moment);
            restore(&arena.second_moment, &saved.second_moment);
        }
        self.discard();
        self.steps = steps;
    }

    /// Reads all values in the layout of [`Parameters::gathered`], for other processes with the same parameters.
    ///
    /// # Errors
    /// An error of the device.
    pub fn flat_values(&self) -> Result<Vec<f32>, GpuError> {
        Ok(self.read(|arena| &arena.values)?.concat())
    }

    /// Overwrites all values with [`Parameters::flat_values`] of another process. Tensors from [`Parameters::get`] stay
    /// valid.
    ///
    /// # Panics
    /// If they are of other parameters.
    #[track_caller]
    pub fn write_flat_values(&mut self, values: &[f32]) {
        for (arena, values) in self.arenas.iter().zip(self.of_arenas(values)) {
            arena.values.write(values);
        }
    }

    /// Splits numbers in the layout of [`Parameters::gathered`] by arena.
    #[track_caller]
    pub(super) fn of_arenas<'a>(&self, mut all: &'a [f32]) -> Vec<&'a [f32]> {
        let wanted: usize = self.arenas.iter().map(|arena| arena.values.len()).sum();
        assert_eq!(all.len(), wanted, "parameters: numbers of all tensors");
        let mut split = Vec::with_capacity(self.arenas.len());
        for arena in &self.arenas {
            let (own, rest) = all.split_at(arena.values.len());
            split.push(own);
            all = rest;
        }
        split
    }

    pub(super) fn read(
        &self,
        part: impl Fn(&ParameterArena) -> &Tensor,
    ) -> Result<Vec<Vec<f32>>, GpuError> {
        let read = |arena| part(arena).to_vec();
        self.arenas.iter().map(read).collect()
    }
}

impl ParameterSlot {
    fn of(&self, arenas: &[Vec<f32>]) -> Vec<f32> {
        arenas[self.arena][self.range.clone()].to_vec()
    }
}
