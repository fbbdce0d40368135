//! Parameters to the host and back: adapter files and checkpoints.

use super::{NamedValues, ParameterArena, ParameterSlot, Parameters};
use crate::Tensor;
use crate::gpu::GpuError;

/// One trained tensor as a checkpoint keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterState {
    /// Its name.
    pub name: String,
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Vec<f32>,
    /// AdamW's mean of gradients.
    pub first_moment: Vec<f32>,
    /// AdamW's mean of squared gradients.
    pub second_moment: Vec<f32>,
}

impl Parameters {
    /// The values by name, in the form that [`Parameters::new`] takes: what an adapter file holds.
    ///
    /// # Errors
    /// What the device reported.
    pub fn values(&self) -> Result<Vec<NamedValues>, GpuError> {
        let arenas = self.read(ParameterArena::all_values)?;
        let one = |place: &ParameterSlot| {
            (
                place.name.clone(),
                place.leaf.shape().to_vec(),
                place.of(&arenas),
            )
        };
        Ok(self.places.iter().map(one).collect())
    }

    /// Everything that a checkpoint needs beside [`Parameters::steps`]. Gradients gathered since the last step are not
    /// part of it.
    ///
    /// # Errors
    /// What the device reported.
    pub fn state(&self) -> Result<Vec<ParameterState>, GpuError> {
        let values = self.read(ParameterArena::all_values)?;
        let first = self.read(|arena| arena.first_moment.clone())?;
        let second = self.read(|arena| arena.second_moment.clone())?;
        let one = |place: &ParameterSlot| ParameterState {
            name: place.name.clone(),
            shape: place.leaf.shape().to_vec(),
            values: place.of(&values),
            first_moment: place.of(&first),
            second_moment: place.of(&second),
        };
        Ok(self.places.iter().map(one).collect())
    }

    /// Puts back what [`Parameters::state`] gave after `steps` steps. Tensors from [`Parameters::get`] stay valid.
    ///
    /// # Panics
    /// If the names or shapes are not those of these parameters, in this order: the reader of a checkpoint checks
    /// them and says which file is wrong.
    #[track_caller]
    pub fn restore(&mut self, state: &[ParameterState], steps: u64) {
        assert_eq!(
            state.len(),
            self.places.len(),
            "restore: tensors in the state and here"
        );
        let blank = || -> Vec<Vec<f32>> {
            self.arenas
                .iter()
                .map(|arena| vec![0.0; arena.len])
                .collect()
        };
        let (mut values, mut first, mut second) = (blank(), blank(), blank());
        for (place, saved) in self.places.iter().zip(state) {
            assert_eq!(
                saved.name, place.name,
                "restore: the name of a tensor in the state and here"
            );
            assert_eq!(
                saved.shape,
                place.leaf.shape(),
                "restore: the shape of {} in the state and here",
                place.name
            );
            place.put(&mut values, &saved.values);
            place.put(&mut first, &saved.first_moment);
            place.put(&mut second, &saved.second_moment);
        }
        for (i, arena) in self.arenas.iter().enumerate() {
            arena.all_values().write(&values[i]);
            arena.first_moment.write(&first[i]);
            arena.second_moment.write(&second[i]);
            arena.gradients.write(&vec![0.0; arena.len]);
        }
        self.steps = steps;
    }

    fn read(&self, part: impl Fn(&ParameterArena) -> Tensor) -> Result<Vec<Vec<f32>>, GpuError> {
        self.arenas
            .iter()
            .map(|arena| part(arena).to_vec())
            .collect()
    }
}

impl ParameterSlot {
    fn of(&self, arenas: &[Vec<f32>]) -> Vec<f32> {
        arenas[self.arena][self.offset..self.offset + self.leaf.len()].to_vec()
    }

    fn put(&self, arenas: &mut [Vec<f32>], values: &[f32]) {
        arenas[self.arena][self.offset..self.offset + self.leaf.len()].copy_from_slice(values);
    }
}
