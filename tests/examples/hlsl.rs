//! Compiles the HLSL of every kernel with Microsoft's own compilers, on Windows or under Wine: FXC (d3dcompiler_47.dll)
//! and DXC (dxcompiler.dll), found beside the program or on the system. Prints the refused kernels, and fails if there
//! are any. tests/windows/run.sh runs it.
//!
//! hlsl FOLDER (fxc | dxc), where FOLDER is one that the example `translations` wrote

#[cfg(windows)]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;
    let arguments: Vec<_> = std::env::args().collect();
    let [_, folder, compiler] = arguments.as_slice() else {
        eprintln!("which folder, and fxc or dxc?");
        return ExitCode::FAILURE;
    };
    let compile = match compiler.as_str() {
        "fxc" => compilers::fxc,
        "dxc" => compilers::dxc,
        _ => {
            eprintln!("fxc or dxc, not {compiler}");
            return ExitCode::FAILURE;
        }
    };
    let kind = if compiler == "fxc" { "hlsl5" } else { "hlsl6" };
    let files = std::fs::read_dir(std::path::Path::new(folder).join(kind)).expect("the folder");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let mut refused = 0;
    for path in &files {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        // shader.entry.constants
        let entry = name.split('.').nth(1).expect("an entry point");
        let text = std::fs::read(path).expect("a file");
        if let Err(error) = compile(&text, entry) {
            refused += 1;
            println!("{name}: {}", error.trim());
        }
    }
    println!("{compiler}: {} files, {refused} refused", files.len());
    match refused == 0 && !files.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[cfg(not(windows))]
fn main() {
    eprintln!("This is for Windows, or for Wine: see tests/windows/run.sh.");
    std::process::exit(1);
}

#[cfg(windows)]
mod compilers {
    use std::ffi::CString;
    use std::sync::OnceLock;

    use windows::Win32::Graphics::Direct3D::Dxc::{
        CLSID_DxcCompiler, DXC_CP_UTF8, DXC_OUT_ERRORS, DxcBuffer, DxcCreateInstanceProc,
        IDxcBlobUtf8, IDxcCompiler3, IDxcResult,
    };
    use windows::Win32::Graphics::Direct3D::ID3DBlob;
    use windows::Win32::System::LibraryLoader::{GetProcAddress, LoadLibraryA};
    use windows::core::{HRESULT, HSTRING, Interface, PCSTR, PCWSTR, s};

    /// Of d3dcompiler.h.
    const SKIP_VALIDATION: u32 = 1 << 1;
    /// ... what the GPU library asks for beside it.
    const IEEE_STRICTNESS: u32 = 1 << 13;

    type D3DCompile = unsafe extern "system" fn(
        *const u8,
        usize,
        PCSTR,
        *const u8,
        *const u8,
        PCSTR,
        PCSTR,
        u32,
        u32,
        *mut Option<ID3DBlob>,
        *mut Option<ID3DBlob>,
    ) -> HRESULT;

    /// A function of a library, which stays loaded.
    fn function(library: PCSTR, name: PCSTR) -> unsafe extern "system" fn() -> isize {
        // SAFETY: both are strings that end with zero; nothing of the library is called but the function.
        unsafe {
            let module = LoadLibraryA(library).expect("the compiler's library");
            GetProcAddress(module, name).expect("the compiler's function")
        }
    }

    fn text(blob: &ID3DBlob) -> String {
        // SAFETY: the pointer and the length are those of the blob, which outlives the copy.
        let bytes = unsafe {
            std::slice::from_raw_parts(blob.GetBufferPointer().cast::<u8>(), blob.GetBufferSize())
        };
        String::from_utf8_lossy(bytes).into_owned()
    }

    pub fn fxc(source: &[u8], entry: &str) -> Result<(), String> {
        static COMPILE: OnceLock<D3DCompile> = OnceLock::new();
        // SAFETY: this is the function's signature in d3dcompiler.h.
        let compile = *COMPILE.get_or_init(|| unsafe {
            std::mem::transmute(function(s!("d3dcompiler_47.dll"), s!("D3DCompile")))
        });
        let entry = CString::new(entry).expect("a name");
        let (mut code, mut errors) = (None, None);
        // SAFETY: the pointers are to what lives until the call returns; no macros, no includes.
        let result = unsafe {
            compile(
                source.as_ptr(),
                source.len(),
                PCSTR::null(),
                std::ptr::null(),
                std::ptr::null(),
                PCSTR(entry.as_ptr().cast()),
                s!("cs_5_1"),
                SKIP_VALIDATION | IEEE_STRICTNESS,
                0,
                &mut code,
                &mut errors,
            )
        };
        match result.is_ok() && code.is_some() {
            true => Ok(()),
            false => Err(errors.as_ref().map_or(result.to_string(), text)),
        }
    }

    pub fn dxc(source: &[u8], entry: &str) -> Result<(), String> {
        static COMPILER: OnceLock<usize> = OnceLock::new();
        // Kept for good, as a number since the pointer may not cross threads: there is one.
        let compiler = *COMPILER.get_or_init(|| {
            // SAFETY: this is the function's signature in dxcapi.h, and the class has this interface.
            unsafe {
                let create: DxcCreateInstanceProc =
                    std::mem::transmute(function(s!("dxcompiler.dll"), s!("DxcCreateInstance")));
                let create = create.expect("the function");
                let mut made = std::ptr::null_mut();
                create(&CLSID_DxcCompiler, &IDxcCompiler3::IID, &mut made)
                    .ok()
                    .expect("a compiler");
                made as usize
            }
        });
        let compiler = compiler as *mut std::ffi::c_void;
        // SAFETY: it is the pointer that was made above, and is never released.
        let compiler =
            unsafe { IDxcCompiler3::from_raw_borrowed(&compiler) }.expect("the compiler");
        let buffer = DxcBuffer {
            Ptr: source.as_ptr().cast(),
            Size: source.len(),
            Encoding: DXC_CP_UTF8.0,
        };
        let arguments: Vec<HSTRING> = [
            "-E",
            entry,
            "-T",
            "cs_6_0",
            "-HV",
            "2018",
            "-no-warnings",
            "-Vd",
        ]
        .into_iter()
        .map(HSTRING::from)
        .collect();
        let arguments: Vec<PCWSTR> = arguments
            .iter()
            .map(|argument| PCWSTR(argument.as_ptr()))
            .collect();
        // SAFETY: source and arguments live until the call returns; no includes.
        unsafe {
            let result: IDxcResult = compiler
                .Compile(&buffer, Some(&arguments), None)
                .map_err(|error| error.to_string())?;
            if result
                .GetStatus()
                .map_err(|error| error.to_string())?
                .is_ok()
            {
                return Ok(());
            }
            let mut errors: Option<IDxcBlobUtf8> = None;
            result
                .GetOutput(DXC_OUT_ERRORS, &mut None, &mut errors)
                .map_err(|error| error.to_string())?;
            let errors = errors.ok_or("no words")?;
            let bytes = std::slice::from_raw_parts(
                errors.GetBufferPointer().cast::<u8>(),
                errors.GetBufferSize(),
            );
            Err(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}
