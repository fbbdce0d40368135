//! The device: its limits, memory pool, compiled kernels and recorded work. Only this folder uses wgpu.

mod caps;
mod kernel;
mod poison;
mod pool;
mod recorder;
mod transfer;
mod wait;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

pub use caps::Caps;
pub(crate) use kernel::{Constants, Groups, Kernel, params};
pub(crate) use pool::{Bind, Binding};

/// An error of the device. The text says how to fix it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GpuError {
    /// No device was found.
    #[error(
        "no GPU found: install a Vulkan driver (on Debian or Ubuntu without a GPU: \
         apt-get install mesa-vulkan-drivers libvulkan1), on macOS and Windows update the GPU driver"
    )]
    NoDevice,
    /// Vulkan could not start, or is installed and offers no device.
    #[error(
        "no GPU found: {0}; install a Vulkan driver (on Debian or Ubuntu without a GPU: apt-get install \
         mesa-vulkan-drivers libvulkan1), or, if one is installed, allow the process more memory (ulimit -v, the container's limit)"
    )]
    NoDriver(String),
    /// A limit of the process is so low that drivers would crash.
    #[error("a GPU driver may not start here: {0}")]
    Limited(String),
    /// The requested device number does not exist.
    #[error("no device is called \"{index}\"; devices: {}", numbered(.found))]
    NoSuchDevice {
        /// The requested number.
        index: usize,
        /// The names of the devices found, in the order of their numbers.
        found: Vec<String>,
    },
    /// The device lacks a feature that every kernel needs, or its driver refused to open it.
    #[error("the device {0}")]
    Unusable(String),
    /// The device was lost.
    #[error(
        "the device was lost: {0}; another program or a driver time limit may have reset it, run again"
    )]
    Lost(String),
    /// The device has no memory left.
    #[error(
        "the device is out of memory: {0}; work on fewer tokens at once or with a smaller model"
    )]
    OutOfMemory(String),
    /// wgpu or the driver refused some work: a bug in lapwing or in the driver.
    #[error("the device refused some work: {0}")]
    Failed(String),
}

/// "0 (first name), 1 (second name)"
fn numbered(names: &[String]) -> String {
    let one = |(index, name)| format!("{index} ({name})");
    let all: Vec<_> = names.iter().enumerate().map(one).collect();
    all.join(", ")
}

/// How to open a [`Gpu`].
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    /// The index in [`Gpu::list`]. The default is that of [`Gpu::choice`].
    pub device: Option<usize>,
    /// Compile kernels with bounds checks, which are slower. For tests.
    pub checked: bool,
    /// Fill each new buffer with NaN, and workgroup memory with large numbers, so that reads of uninitialised memory
    /// change results. For tests.
    pub poison: bool,
    /// Limit bindings to this many bytes. For tests of the splitting of weights.
    pub max_binding: Option<u64>,
    /// Use only what WebGPU guarantees everywhere, as in a browser: parameters come in a buffer, subgroups exchange no
    /// values, and the device refuses everything else.
    pub webgpu: bool,
    /// Limit submissions to this many operations instead of the measured limit. For tests of the splitting of long work.
    pub max_work: Option<u64>,
    /// Called with the shader, the entry point and the constants of each kernel before it is compiled. Tests use it to
    /// check that the list of kernel variants is complete.
    pub on_compile: Option<OnCompile>,
}

/// See [`GpuOptions::on_compile`].
type OnCompile = fn(shader: &str, entry: &str, constants: &[(&'static str, u32)]);

/// A device with its memory pool, compiled kernels and recorded work. Cheap to clone.
///
/// Work is recorded and submitted in batches. Reading a tensor submits the outstanding work and waits.
#[derive(Clone)]
pub struct Gpu(Arc<GpuInner>);

struct GpuInner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    caps: Caps,
    options: GpuOptions,
    kernels: kernel::CompiledKernels,
    recorder: Mutex<recorder::Recorder>,
    pool: Mutex<pool::Pool>,
    failure: Arc<DeviceFailure>,
    /// bytes written since the last wait for uploads
    pending_upload: AtomicU64,
}

/// The first error that was not returned to the caller yet. While there is one, nothing is computed or written, so the
/// contents of the device stay as they were before.
#[derive(Default)]
struct DeviceFailure(Mutex<Option<GpuError>>);

impl DeviceFailure {
    /// The loss of the device replaces any other error.
    fn set(&self, error: GpuError) {
        let mut first = self.0.lock().expect("failure");
        if first.is_none() || matches!(error, GpuError::Lost(_)) {
            *first = Some(error);
        }
    }

    /// Returns the error and clears it, except for a lost device, which stays lost.
    fn take(&self) -> Result<(), GpuError> {
        let mut error = self.0.lock().expect("failure");
        match &*error {
            Some(lost @ GpuError::Lost(_)) => Err(lost.clone()),
            _ => error.take().map_or(Ok(()), Err),
        }
    }
}

/// The work that a device was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches of dispatches given to the driver.
    pub submissions: u64,
    /// Runs of kernels. One that is too long for a submission counts once for each of its parts.
    pub dispatches: u64,
    /// Sizes of all buffers that kernels were given. A kernel may use less of a buffer than its size.
    pub bytes: u64,
}

impl Counts {
    /// Returns the difference to counts that were read earlier.
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            submissions: self.submissions - earlier.submissions,
            dispatches: self.dispatches - earlier.dispatches,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// If there is no device, no such device, or the device lacks a feature that the kernels need.
    pub fn open(options: GpuOptions) -> Result<Gpu, GpuError> {
        let adapters = caps::adapters();
        let all = || adapters.iter().map(|(caps, _)| caps);
        let found: Vec<_> = all().map(|caps| caps.name.clone()).collect();
        let index = match options.device {
            Some(index) if !found.is_empty() => index,
            _ if found.is_empty() => return Err(Gpu::none_found()),
            _ => Gpu::choice(all()).ok_or(GpuError::NoDevice)?,
        };
        let (mut caps, adapter) = adapters
            .into_iter()
            .nth(index)
            .ok_or(GpuError::NoSuchDevice { index, found })?;
        if options.webgpu {
            caps.lower_to_webgpu();
        }
        if let Some(lower) = options.max_binding {
            caps.max_binding = caps.max_binding.min(lower);
        }
        let (device, queue) = caps::open(&adapter, &caps)?;
        let recorder = recorder::Recorder::new(&device, &queue, caps.immediates, options.max_work);

        let failure = Arc::new(DeviceFailure::default());
        let (lost, failed) = (failure.clone(), failure.clone());
        device.set_device_lost_callback(move |reason, message| {
            let message = match message.is_empty() {
                true => format!("{reason:?}"),
                false => message,
            };
            lost.set(GpuError::Lost(message));
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
            kernels: kernel::CompiledKernels::default(),
            recorder: Mutex::new(recorder),
            pool: Mutex::default(),
            device,
            queue,
            caps,
            options,
            failure,
            pending_upload: AtomicU64::new(0),
        })))
    }

    /// Loses the device, as a driver's reset does. For tests.
    pub fn lose(&self) {
        self.0.device.destroy();
    }

    /// Returns the reason why [`Gpu::list`] is empty, as far as it is known.
    pub fn none_found() -> GpuError {
        let why = || caps::why_none().map_or(GpuError::NoDevice, GpuError::NoDriver);
        caps::too_low_limit().map_or_else(why, GpuError::Limited)
    }

    /// Returns every device found, in the order of their numbers.
    pub fn list() -> Vec<Caps> {
        caps::adapters().into_iter().map(|(caps, _)| caps).collect()
    }

    /// Returns the index of the default device: a discrete GPU before an integrated one before anything else, the first
    /// of equals.
    pub fn choice<'a>(list: impl Iterator<Item = &'a Caps>) -> Option<usize> {
        list.enumerate()
            .filter(|(_, caps)| caps.lacks.is_none())
            .min_by_key(|(_, caps)| caps.rank)
            .map(|(i, _)| i)
    }

    /// The properties and limits of this device.
    pub fn caps(&self) -> &Caps {
        &self.0.caps
    }

    /// Whether the device is a software driver on a processor.
    pub fn is_software(&self) -> bool {
        self.0.caps.is_software
    }

    /// The work recorded since the device was opened.
    pub fn counts(&self) -> Counts {
        self.0.recorder.lock().expect("recorder").counts
    }

    /// Bytes that tensors hold on the device now, without unused buffers of the pool.
    pub fn bytes_in_use(&self) -> u64 {
        self.0.pool.lock().expect("pool").in_use
    }

    /// Bytes of all buffers for tensors: those in use, and the unused ones of the pool.
    pub fn bytes_held(&self) -> u64 {
        self.0.pool.lock().expect("pool").held()
    }

    /// The largest value of [`Gpu::bytes_in_use`] since the device was opened or [`Gpu::reset_peak`] was called.
    pub fn peak_in_use(&self) -> u64 {
        self.0.pool.lock().expect("pool").peak_in_use
    }

    /// Starts a new measurement of the peak.
    pub fn reset_peak(&self) {
        self.0.pool.lock().expect("pool").reset_peak();
    }

    /// Frees the memory of unused buffers, after the work that uses them.
    pub fn drop_unused(&self) {
        self.0.pool.lock().expect("pool").drop_free();
        self.submit();
        self.wait();
    }

    /// Submits the recorded work and waits until the device has finished it.
    ///
    /// # Errors
    /// The first error since this function or a read last returned one. Between the failure and this call nothing was
    /// computed or written, so older tensors can still be read, unless the device was lost. A lost device stays lost.
    pub fn finish(&self) -> Result<(), GpuError> {
        self.submit();
        self.wait();
        self.take_failure()
    }

    /// Whether there is an error that was not returned yet.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.failure.0.lock().expect("failure").is_some()
    }

    /// Returns the pending error, if there is one.
    fn take_failure(&self) -> Result<(), GpuError> {
        if self.has_failed() {
            // A lost device refuses work before it reports the loss.
            let _ = self.0.device.poll(wgpu::PollType::Poll);
        }
        let result = self.0.failure.take();
        if result.is_err() {
            // Reading values back to save them needs memory too.
            self.0.pool.lock().expect("pool").drop_free();
        }
        result
    }

    pub(crate) fn submit(&self) {
        self.0.recorder.lock().expect("recorder").submit();
    }

    /// A buffer of `bytes`, uninitialised (NaN when poisoned).
    pub(crate) fn alloc(&self, bytes: u64) -> Binding {
        let buffer = pool::take(self, false, bytes);
        if self.0.options.poison {
            buffer.fill(f32::NAN.to_bits());
        }
        buffer
    }

    /// A texture for `bytes`, which kernels for processors read faster than a buffer.
    pub(crate) fn alloc_texture(&self, bytes: u64) -> Binding {
        pool::take(self, true, bytes)
    }

    /// Bytes of the largest texture; `None` if matrices are in buffers, as on all devices but processors.
    pub(crate) fn max_texture(&self) -> Option<u64> {
        let rows = self.0.device.limits().max_texture_dimension_2d;
        let is_read = self.is_software() && self.caps().dialect().extended;
        is_read.then_some(u64::from(rows) * pool::TEXTURE_ROW)
    }

    /// A buffer that holds `words`, four bytes each.
    pub(crate) fn upload<T: bytemuck::Pod>(&self, words: &[T]) -> Binding {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let buffer = pool::take(self, false, bytes.len() as u64);
        buffer.write(0, bytes);
        buffer
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({})", self.caps().name)
    }
}

impl Gpu {
    /// Changes the reported capabilities, to run the kernels for other devices on this one. For tests and benchmarks.
    ///
    /// # Panics
    /// If the device is already shared.
    pub fn with_caps(mut self, change: impl FnOnce(&mut Caps)) -> Gpu {
        let inner = Arc::get_mut(&mut self.0).expect("a device with one owner");
        change(&mut inner.caps);
        self
    }
}

#[cfg(test)]
impl Gpu {
    /// The largest value of `bytes_held` since the last [`Gpu::reset_peak`].
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.0.pool.lock().expect("pool").peak
    }

    /// The shader and entry point of each kernel launched so far.
    pub(crate) fn kernels_used(&self) -> Vec<(&'static str, &'static str)> {
        self.0.kernels.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_device_number_lists_the_devices() {
        let device = Some(99);
        let options = GpuOptions {
            device,
            ..GpuOptions::default()
        };
        let Err(error) = Gpu::open(options) else {
            panic!("a device 99 was opened")
        };
        let text = error.to_string();
        assert!(
            text.starts_with("no device is called \"99\"; devices: 0 ("),
            "{text}"
        );
        for (index, caps) in Gpu::list().iter().enumerate() {
            assert!(text.contains(&format!("{index} ({})", caps.name)), "{text}");
        }
    }

    #[test]
    fn work_is_counted() {
        use crate::Tensor;
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let x = Tensor::from_slice(&gpu, &[1.0; 1000], &[10, 100]);
        let before = gpu.counts();
        let y = x.neg().add(&x);
        // Two tensors, then three, of 4000 bytes.
        let counts = |submissions, dispatches, bytes| Counts {
            submissions,
            dispatches,
            bytes,
        };
        assert_eq!(gpu.counts().since(before), counts(0, 2, 20_000));
        y.to_vec().unwrap();
        assert_eq!(gpu.counts().since(before), counts(1, 2, 20_000));
    }

    fn small() -> Gpu {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        gpu.with_caps(|caps| caps.max_buffer = 1 << 20)
    }

    #[test]
    fn after_an_out_of_memory_error_older_values_are_unchanged_and_readable() {
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
        let settings = AdamW {
            lr: 0.1,
            ..AdamW::default()
        };
        parameters.step(settings);
        let error = before.to_vec().unwrap_err();
        assert!(matches!(error, GpuError::OutOfMemory(_)), "{error}");

        // The error is returned once; then older values can be read.
        assert_eq!(before.to_vec().unwrap(), [-1.0, -2.0, -3.0]);
        assert_eq!(x.to_vec().unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(
            (
                parameters.values().unwrap()[0].2.as_slice(),
                parameters.steps()
            ),
            (&[4.0, 5.0][..], 0)
        );
        // Tensors that were not computed return an error each time.
        for tensor in [&large, &after, &large, &after] {
            let error = tensor.to_vec().unwrap_err().to_string();
            assert!(
                error.ends_with("was made after a failure and never computed"),
                "{error}"
            );
        }
        // Work continues.
        assert_eq!(x.add(&x).to_vec().unwrap(), [2.0, 4.0, 6.0]);
        parameters.step(settings);
        assert_eq!(parameters.steps(), 1);
        assert!(parameters.values().unwrap()[0].2[0] < 4.0);
        gpu.finish().unwrap();
    }

    #[test]
    fn a_lost_device_returns_an_error_each_time_and_nothing_panics() {
        use crate::{Tensor, Visibility};
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        let x = Tensor::from_slice(&gpu, &[0.5; 64], &[4, 16]).tracked();
        x.to_vec().unwrap();
        gpu.lose();
        for _ in 0..3 {
            // New kernels, new buffers, writes, reads, gradients.
            let y = x.attention(&x, &x, &Visibility::tree(&gpu, &[4; 4]), 1, 1);
            let gradients = y.matmul_nt(&x).sum().backward();
            x.detach().write(&[1.0; 64]);
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
