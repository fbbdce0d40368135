//! The device: adapter, limits, memory, compiled kernels, recorded work. The only folder that knows wgpu.

mod caps;
mod kernel;
mod poison;
mod pool;
mod recorder;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use caps::Caps;
pub(crate) use kernel::Constants;
pub(crate) use kernel::{Groups, Kernel};
pub(crate) use pool::{Bind, Binding, Storage};

/// What can go wrong with the device. The text names the cure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GpuError {
    /// No adapter that can compute.
    #[error(
        "no GPU adapter found: install a Vulkan driver (on Debian or Ubuntu without a GPU: \
         apt-get install mesa-vulkan-drivers libvulkan1), on macOS and Windows update the system's driver"
    )]
    NoAdapter,
    /// Vulkan could not begin, or offers no adapter though it is there.
    #[error(
        "no GPU adapter found: {0}; install a Vulkan driver (on Debian or Ubuntu without a GPU: apt-get install \
         mesa-vulkan-drivers libvulkan1), or, if there is one, give the process more memory (ulimit -v, a container's limit)"
    )]
    NoDriver(String),
    /// An adapter was asked for by a number that does not exist.
    #[error("there is no adapter {index}, wanted one of {}", numbered(.found))]
    NoSuchAdapter {
        /// the number asked for
        index: usize,
        /// the names of those there are, in the order of their numbers
        found: Vec<String>,
    },
    /// The adapter lacks something that every kernel needs.
    #[error(
        "the adapter {name} lacks {lacks}, and every kernel needs that; choose another adapter, or update its driver"
    )]
    Unfit {
        /// the adapter
        name: String,
        /// the missing feature
        lacks: String,
    },
    /// The driver refused to give a device.
    #[error("the adapter {name} gave no device: {reason}")]
    Refused {
        /// the adapter
        name: String,
        /// the driver's words
        reason: String,
    },
    /// The device stopped answering.
    #[error(
        "the device was lost: {0}; another program or a driver time limit may have reset it, run again"
    )]
    Lost(String),
    /// The device has no memory left.
    #[error(
        "the device is out of memory: {0}; work on fewer tokens at once or with a smaller model"
    )]
    OutOfMemory(String),
    /// wgpu or the driver refused a piece of work: a mistake in lapwing or in the driver.
    #[error("the device refused some work: {0}")]
    Failed(String),
}

/// "0 (this adapter), 1 (that adapter)"
fn numbered(names: &[String]) -> String {
    let one = |(index, name)| format!("{index} ({name})");
    let all: Vec<_> = names.iter().enumerate().map(one).collect();
    all.join(", ")
}

/// How to open a [`Gpu`].
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    /// Which adapter of [`Gpu::list`]; by default the first real GPU, else whatever there is.
    pub device: Option<usize>,
    /// Compile kernels with bounds checks. Tests do; it is slower.
    pub checked: bool,
    /// Fill every new buffer with NaN, and what a group shares with large numbers, so that a read of what nobody wrote shows.
    /// Tests do.
    pub poison: bool,
    /// Pretend that a binding holds at most this many bytes, to try the splitting of weights.
    pub max_binding: Option<u64>,
    /// Pretend that the adapter is a browser's: only what WebGPU promises everywhere. Parameters come in a buffer, nothing is
    /// exchanged within a subgroup, and the device refuses whatever goes beyond.
    pub webgpu: bool,
    /// Operations of a submission, in place of what the device was seen to do in a quarter of a second: to try the cutting
    /// of long work.
    pub max_work: Option<u64>,
    /// Called with the shader, the entry point and the constants of each kernel before it is compiled. Tests check with it
    /// that the list of kernel variants is complete.
    pub on_compile: Option<OnCompile>,
}

/// See [`GpuOptions::on_compile`].
type OnCompile = fn(shader: &str, entry: &str, constants: &[(&'static str, u32)]);

/// One device with its memory pool, its compiled kernels and the work recorded for it. Cheap to clone.
///
/// Work is recorded and submitted in batches; reading a tensor back submits what is outstanding and waits.
#[derive(Clone)]
pub struct Gpu(Arc<GpuInner>);

struct GpuInner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    caps: Caps,
    options: GpuOptions,
    kernels: kernel::Compiled,
    recorder: Mutex<recorder::Recorder>,
    pool: Mutex<pool::Pool>,
    failure: Arc<DeviceFailure>,
    /// bytes written since the device was last made to take them
    waiting: AtomicU64,
}

/// The first thing that went wrong and was not told yet. From then on nothing is computed or written, so that what the
/// device holds stays what it was before.
#[derive(Default)]
struct DeviceFailure {
    error: Mutex<Option<GpuError>>,
    /// whether there is one: asked at each launch
    is_there: AtomicBool,
}

impl DeviceFailure {
    fn set(&self, error: GpuError) {
        self.error.lock().expect("failure").get_or_insert(error);
        self.is_there.store(true, Ordering::Release);
    }

    /// The device is gone, whatever else went wrong before.
    fn lose(&self, message: String) {
        *self.error.lock().expect("failure") = Some(GpuError::Lost(message));
        self.is_there.store(true, Ordering::Release);
    }

    /// What went wrong, if anything did. It is told once, but for a lost device, which holds nothing any more.
    fn tell(&self) -> Result<(), GpuError> {
        let mut error = self.error.lock().expect("failure");
        match &*error {
            None => Ok(()),
            Some(lost @ GpuError::Lost(_)) => Err(lost.clone()),
            Some(_) => {
                self.is_there.store(false, Ordering::Release);
                Err(error.take().expect("an error"))
            }
        }
    }
}

/// Bytes that may wait in host memory on their way to the device.
const MOST_WAITING: u64 = 64 << 20;

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// When there is no adapter, no such adapter, or the adapter cannot do what the kernels need.
    pub fn open(options: GpuOptions) -> Result<Gpu, GpuError> {
        let adapters = caps::adapters();
        let all = || adapters.iter().map(|(_, caps)| caps);
        let found: Vec<_> = all().map(|caps| caps.name.clone()).collect();
        let index = match options.device {
            Some(index) if !found.is_empty() => index,
            _ if found.is_empty() => return Err(Gpu::none_found()),
            _ => Gpu::choice(all()).ok_or(GpuError::NoAdapter)?,
        };
        let (adapter, mut caps) = adapters
            .into_iter()
            .nth(index)
            .ok_or(GpuError::NoSuchAdapter { index, found })?;
        if options.webgpu {
            caps.lower_to_webgpu();
        }
        if let Some(lower) = options.max_binding {
            caps.max_binding = caps.max_binding.min(lower);
        }
        let (device, queue) = caps::open(&adapter, &caps)?;
        let recorder = recorder::Recorder::new(&device, caps.immediates, options.max_work);

        let failure = Arc::new(DeviceFailure::default());
        let (lost, failed) = (failure.clone(), failure.clone());
        device.set_device_lost_callback(move |reason, message| {
            let message = match message.is_empty() {
                true => format!("{reason:?}"),
                false => message,
            };
            lost.lose(message);
        });
        let checked = options.checked;
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            assert!(!checked, "{error}");
            failed.set(match error {
                wgpu::Error::OutOfMemory { source } => GpuError::OutOfMemory(source.to_string()),
                other => GpuError::Failed(other.to_string()),
            });
        }));
        Ok(Gpu(Arc::new(GpuInner {
            kernels: kernel::Compiled::default(),
            recorder: Mutex::new(recorder),
            pool: Mutex::default(),
            device,
            queue,
            caps,
            options,
            failure,
            waiting: AtomicU64::new(0),
        })))
    }

    /// Why [`Gpu::list`] is empty, as far as the system tells.
    pub fn none_found() -> GpuError {
        caps::why_none().map_or(GpuError::NoAdapter, GpuError::NoDriver)
    }

    /// Every adapter found, in the order of their numbers.
    pub fn list() -> Vec<Caps> {
        caps::adapters().into_iter().map(|(_, caps)| caps).collect()
    }

    /// Which of these adapters [`Gpu::open`] takes when none is asked for: a discrete GPU before an integrated one
    /// before anything else, the first of equals.
    pub fn choice<'a>(list: impl Iterator<Item = &'a Caps>) -> Option<usize> {
        list.enumerate()
            .filter(|(_, caps)| caps.lacks.is_none())
            .min_by_key(|(_, caps)| caps.rank)
            .map(|(i, _)| i)
    }

    /// What this device is and can do.
    pub fn caps(&self) -> &Caps {
        &self.0.caps
    }

    /// Whether a processor, not a GPU, does the work.
    pub fn is_software(&self) -> bool {
        self.0.caps.is_software
    }

    /// Bytes that tensors hold on the device now, unused buffers of the pool not counted.
    pub fn bytes_in_use(&self) -> u64 {
        self.0.pool.lock().expect("pool").in_use()
    }

    /// Bytes of all buffers that exist for tensors now: those in use, and the unused ones that the pool keeps.
    pub fn bytes_held(&self) -> u64 {
        self.0.pool.lock().expect("pool").held()
    }

    /// The most that [`Gpu::bytes_held`] was since the device was opened or [`Gpu::reset_peak`] was called: what the
    /// card must have, but for kernels and what is on its way to or from the host.
    pub fn peak_bytes(&self) -> u64 {
        self.0.pool.lock().expect("pool").peak()
    }

    /// The most that [`Gpu::bytes_in_use`] was in that time: what the work needs, however the pool does its part.
    pub fn peak_in_use(&self) -> u64 {
        self.0.pool.lock().expect("pool").peak_in_use()
    }

    /// Makes both peaks begin again from what is there now.
    pub fn reset_peak(&self) {
        self.0.pool.lock().expect("pool").reset_peak();
    }

    /// Submits what is recorded and waits until the device has done it.
    ///
    /// # Errors
    /// What the device reported since this, or a read, last gave an error. From the report until then nothing was
    /// computed or written: tensors that were there before can still be read, unless the device was lost, which it stays.
    pub fn finish(&self) -> Result<(), GpuError> {
        self.submit();
        self.wait();
        self.told()
    }

    /// Until the device has done all that was submitted. A failure is kept.
    fn wait(&self) {
        if let Err(error) = self.0.device.poll(wgpu::PollType::wait_indefinitely()) {
            self.0.failure.set(GpuError::Failed(error.to_string()));
        }
        self.0.recorder.lock().expect("recorder").finished();
    }

    /// Whether something went wrong that nobody was told.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.failure.is_there.load(Ordering::Acquire)
    }

    /// Tells what went wrong.
    fn told(&self) -> Result<(), GpuError> {
        if self.has_failed() {
            // A device that is lost refuses work before it says that it is lost.
            let _ = self.0.device.poll(wgpu::PollType::Poll);
        }
        let told = self.0.failure.tell();
        if told.is_err() {
            // Reading back what is to be saved takes memory too.
            self.0.pool.lock().expect("pool").drop_free();
        }
        told
    }

    pub(crate) fn submit(&self) {
        self.0
            .recorder
            .lock()
            .expect("recorder")
            .submit(&self.0.queue);
    }

    /// A buffer of `bytes` with whatever was in it before (NaN when poisoned).
    pub(crate) fn alloc(&self, bytes: u64) -> Arc<Storage> {
        let storage = pool::take(self, bytes);
        if self.0.options.poison {
            self.fill(&storage, f32::NAN.to_bits());
        }
        storage
    }

    /// A buffer that holds `words`, four bytes each.
    pub(crate) fn upload<T: bytemuck::Pod>(&self, words: &[T]) -> Arc<Storage> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let storage = pool::take(self, bytes.len() as u64);
        self.write(&storage, 0, bytes);
        storage
    }

    /// Overwrites part of a buffer, after all work recorded so far.
    pub(crate) fn write(&self, storage: &Storage, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() || self.has_failed() {
            return;
        }
        // A write through the queue happens before the next submission, hence before work that is recorded but not
        // submitted: submit that first if it can know this buffer.
        let mut recorder = self.0.recorder.lock().expect("recorder");
        if storage.used_since(recorder.epoch()) {
            recorder.submit(&self.0.queue);
        }
        storage.mark_used(recorder.epoch());
        drop(recorder);
        self.0.queue.write_buffer(storage.buffer(), offset, bytes);
        // What is written waits in host memory for the next submission. A model that is loaded makes none for gigabytes.
        let waiting = &self.0.waiting;
        if waiting.fetch_add(bytes.len() as u64, Ordering::Relaxed) > MOST_WAITING {
            waiting.store(0, Ordering::Relaxed);
            self.0.queue.submit([]);
            self.wait();
        }
    }

    /// Waits for `bytes` of a buffer.
    pub(crate) fn read(
        &self,
        storage: &Storage,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<u8>, GpuError> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        self.told()?;
        if !storage.is_there() {
            let text = "this tensor was made after a failure and never computed".to_owned();
            return Err(GpuError::Failed(text));
        }
        let staging = self.0.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        // Before the copy is recorded, which would take what is recorded already down with it.
        self.told()?;
        {
            let mut recorder = self.0.recorder.lock().expect("recorder");
            recorder.copy_out(&self.0.device, storage.buffer(), offset, &staging, bytes);
            recorder.submit(&self.0.queue);
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        staging.map_async(wgpu::MapMode::Read, .., move |mapped| {
            let _ = sender.send(mapped);
        });
        self.wait();
        self.told()?;
        let failed = |e: &dyn std::fmt::Display| GpuError::Failed(e.to_string());
        receiver
            .recv()
            .map_err(|e| failed(&e))?
            .map_err(|e| failed(&e))?;
        let view = staging.get_mapped_range(..).map_err(|e| failed(&e))?;
        Ok(view.to_vec())
    }

    /// Sets every word of a buffer.
    pub(crate) fn fill(&self, storage: &Arc<Storage>, bits: u32) {
        #[repr(C)]
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        struct Params {
            count: u32,
            bits: u32,
        }
        const FILL: Kernel = Kernel::new("fill", "fill");
        // Windows of what one binding holds.
        let window = (self.caps().max_binding / 1024 * 1024).max(1024);
        let mut offset = 0;
        while offset < storage.size() {
            let size = window.min(storage.size() - offset);
            let count = (size / 4) as u32;
            let binding = Binding::new(storage.clone(), offset, size);
            let groups = Groups::of(count.div_ceil(4) as usize, 64);
            FILL.launch(&[], &[&binding], &Params { count, bits }, groups);
            offset += size;
        }
    }
}

impl Gpu {
    /// The same device with other capabilities than the driver says, to try the kernels of other adapters on it.
    ///
    /// # Panics
    /// If the device is in use already.
    pub fn with_caps(mut self, change: impl FnOnce(&mut Caps)) -> Gpu {
        let inner = Arc::get_mut(&mut self.0).expect("a device that nobody else has");
        change(&mut inner.caps);
        self
    }
}

#[cfg(test)]
impl Gpu {
    /// How often work was handed to the device.
    pub(crate) fn submissions(&self) -> u64 {
        self.0.recorder.lock().expect("recorder").epoch() - 1
    }

    /// The shader and entry point of every kernel that was launched.
    pub(crate) fn kernels_used(&self) -> Vec<(&'static str, &'static str)> {
        self.0.kernels.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_is_not_there_is_answered_with_those_that_are() {
        let device = Some(99);
        let options = GpuOptions {
            device,
            ..GpuOptions::default()
        };
        let Err(error) = Gpu::open(options) else {
            panic!("an adapter 99 was opened")
        };
        let text = error.to_string();
        assert!(
            text.starts_with("there is no adapter 99, wanted one of 0 ("),
            "{text}"
        );
        for (index, caps) in Gpu::list().iter().enumerate() {
            assert!(text.contains(&format!("{index} ({})", caps.name)), "{text}");
        }
    }

    fn small() -> Gpu {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        gpu.with_caps(|caps| caps.max_buffer = 1 << 20)
    }

    #[test]
    fn after_memory_ran_out_what_was_there_can_be_read_and_nothing_has_moved() {
        use crate::{AdamW, Parameters, Tensor};
        let gpu = small();
        let x = Tensor::from_slice(&gpu, &[1.0, 2.0, 3.0], &[3]);
        let before = x.neg();
        let mut parameters = Parameters::new(&gpu, &[("p".to_owned(), vec![2], vec![4.0, 5.0])]);
        let loss = parameters.get("p").square().sum();
        parameters.accumulate(&loss.backward());

        let large = Tensor::zeros(&gpu, &[1 << 20]);
        let after = x.add(&x);
        x.write(&[7.0, 7.0, 7.0]);
        let knobs = AdamW {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            max_norm: 1.0,
        };
        parameters.step(knobs);
        let told = before.to_vec().unwrap_err();
        assert!(matches!(told, GpuError::OutOfMemory(_)), "{told}");

        // Told once, what can be saved is saved.
        assert_eq!(before.to_vec().unwrap(), [-1.0, -2.0, -3.0]);
        assert_eq!(x.to_vec().unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(
            (
                parameters.values().unwrap()[0].2.as_slice(),
                parameters.steps()
            ),
            (&[4.0, 5.0][..], 0)
        );
        // What could not be computed says so, however often it is asked for.
        for tensor in [&large, &after, &large, &after] {
            let error = tensor.to_vec().unwrap_err().to_string();
            assert!(
                error.ends_with("was made after a failure and never computed"),
                "{error}"
            );
        }
        // And work goes on.
        assert_eq!(x.add(&x).to_vec().unwrap(), [2.0, 4.0, 6.0]);
        parameters.step(knobs);
        assert_eq!(parameters.steps(), 1);
        assert!(parameters.values().unwrap()[0].2[0] < 4.0);
        gpu.finish().unwrap();
    }

    #[test]
    fn a_lost_device_is_told_again_and_again_and_nothing_panics() {
        use crate::{Tensor, Visibility};
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let x = Tensor::from_slice(&gpu, &[0.5; 64], &[4, 16]).tracked();
        x.to_vec().unwrap();
        gpu.0.device.destroy();
        for _ in 0..3 {
            // Kernels that are new, buffers that are new, writes, reads, gradients.
            let y = x.attention(&x, &x, &Visibility::tree(&gpu, &[4; 4]), 1, 1);
            let gradients = y.matmul_nt(&x).sum().backward();
            x.write(&[1.0; 64]);
            let gradient = gradients.get(&x).unwrap().to_vec();
            for result in [
                x.to_vec(),
                y.to_vec(),
                gradient,
                gpu.finish().map(|()| Vec::new()),
            ] {
                let error = result.unwrap_err();
                assert!(matches!(error, GpuError::Lost(_)), "{error}");
            }
        }
    }

    #[test]
    fn a_kernel_that_the_driver_refuses_is_an_error() {
        use crate::Tensor;
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let x = Tensor::from_slice(&gpu, &[1.0], &[1]);
        gpu.miscompile("unary", "return -v;", "return minus v;");
        let y = x.neg();
        let error = y.to_vec().unwrap_err();
        assert!(matches!(error, GpuError::Failed(_)), "{error}");
        assert_eq!(x.to_vec().unwrap(), [1.0]);
    }
}
