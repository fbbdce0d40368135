//! Waiting for the device. In a browser no thread may block: the program is suspended meanwhile (WebAssembly's JavaScript
//! Promise Integration), so everything that waits must be called from an export with the attribute `jspi`.

#[cfg(target_family = "wasm")]
pub(super) use browser::{block_on, map};
#[cfg(not(target_family = "wasm"))]
pub(super) use {native::map, pollster::block_on};

#[cfg(not(target_family = "wasm"))]
mod native {
    use crate::gpu::{Gpu, GpuError};

    /// Waits for all submitted work and maps a buffer for reading.
    pub(in crate::gpu) fn map(gpu: &Gpu, staging: &wgpu::Buffer) -> Result<(), GpuError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        staging.map_async(wgpu::MapMode::Read, .., move |mapped| {
            let _ = sender.send(mapped);
        });
        gpu.wait();
        gpu.take_failure()?;
        let failed = |e: &dyn std::fmt::Display| GpuError::Failed(e.to_string());
        let mapped = receiver.recv().map_err(|e| failed(&e))?;
        mapped.map_err(|e| failed(&e))
    }

    impl Gpu {
        /// Waits until the device has finished all submitted work. An error is kept.
        pub(in crate::gpu) fn wait(&self) {
            if let Err(error) = self.0.device.poll(wgpu::PollType::wait_indefinitely()) {
                self.0.failure.set(GpuError::Failed(error.to_string()));
            }
            self.0.recorder.lock().expect("recorder").finished();
        }
    }
}

#[cfg(target_family = "wasm")]
#[expect(
    deprecated,
    reason = "waiting is new in browsers, and called experimental"
)]
mod browser {
    use std::cell::Cell;
    use std::rc::Rc;

    use js_sys::futures::{jspi_block_on_promise, spawn_local};
    use js_sys::{Function, Promise};
    use wasm_bindgen::JsValue;

    use crate::gpu::{Gpu, GpuError};

    /// Receives the value that the program waits for.
    struct Waiter<T> {
        value: Rc<Cell<Option<T>>>,
        resolve: Function,
    }

    // SAFETY: the module is built without threads.
    unsafe impl<T> Send for Waiter<T> {}

    impl<T> Waiter<T> {
        fn done(self, value: T) {
            self.value.set(Some(value));
            let _ = self.resolve.call0(&JsValue::UNDEFINED);
        }
    }

    /// Suspends until the waiter that `start` gets has a value, and returns it.
    fn suspend<T>(start: impl FnOnce(Waiter<T>)) -> T {
        let value = Rc::new(Cell::new(None));
        let mut start = Some(start);
        let promise = Promise::new(&mut |resolve, _| {
            let value = value.clone();
            let start = start.take().expect("called once");
            start(Waiter { value, resolve });
        });
        let suspended = jspi_block_on_promise(&promise);
        suspended.expect("the promise is never rejected");
        value.take().expect("the promise is resolved with a value")
    }

    pub(in crate::gpu) fn block_on<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
        suspend(|waiter| spawn_local(async move { waiter.done(future.await) }))
    }

    pub(in crate::gpu) fn map(gpu: &Gpu, staging: &wgpu::Buffer) -> Result<(), GpuError> {
        let mapped = suspend(|waiter: Waiter<_>| {
            staging.map_async(wgpu::MapMode::Read, .., move |mapped| waiter.done(mapped));
        });
        gpu.0.recorder.lock().expect("recorder").finished();
        gpu.take_failure()?;
        mapped.map_err(|e| GpuError::Failed(e.to_string()))
    }

    impl Gpu {
        /// Waits until the device has finished all submitted work. An error is kept.
        pub(in crate::gpu) fn wait(&self) {
            suspend(|waiter| {
                let queue = &self.0.queue;
                queue.on_submitted_work_done(move || waiter.done(()));
            });
            self.0.recorder.lock().expect("recorder").finished();
        }
    }
}
