// Compiles WGSL files with Tint, the compiler of Chromium, through Dawn's own module for Node (npm install webgpu), on its
// null backend: no adapter is needed. Says which were refused, and fails if any was.
//
// node tests/compilers/tint.mjs FOLDER
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [, self, folder, from] = process.argv;
const all = readdirSync(folder).filter((name) => name.endsWith('.wgsl')).sort();

// Dawn's module for Node crashes somewhere beyond a thousand shaders: a process for each hundred.
const BATCH = 100;
if (from === undefined) {
  let refused = 0;
  for (let start = 0; start < all.length; start += BATCH) {
    const { status } = spawnSync(process.execPath, [self, folder, String(start)], { stdio: 'inherit' });
    if (status === null || status > BATCH) throw new Error(`Dawn crashed on files ${start} to ${start + BATCH}`);
    refused += status;
  }
  console.log(`Tint: ${all.length} files, ${refused} refused`);
  process.exit(refused > 0 || all.length === 0 ? 1 : 0);
}

// From where the command is run, not from where this file is.
const { create, globals } = createRequire(join(process.cwd(), 'here.js'))('webgpu');
Object.assign(globalThis, globals);

const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
const adapter = await gpu.requestAdapter();
const wanted = ['shader-f16'].filter((name) => adapter.features.has(name));
const device = await adapter.requestDevice({
  requiredFeatures: wanted,
  requiredLimits: { maxStorageBuffersPerShaderStage: 8, maxImmediateSize: 64 },
});

let refused = 0;
for (const name of all.slice(Number(from), Number(from) + BATCH)) {
  const code = readFileSync(join(folder, name), 'utf8');
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const bad = messages.filter((message) => message.type === 'error');
  const entryPoint = name.split('.')[1];
  // Browsers get parameters in a buffer: Dawn allows fewer immediates than products need.
  const isForBrowsers = !code.includes('var<immediate>');
  if (bad.length === 0 && isForBrowsers) device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint } });
  const error = await device.popErrorScope();
  if (bad.length > 0 || error) {
    refused += 1;
    const first = bad[0] ? `line ${bad[0].lineNum}: ${bad[0].message}` : error.message;
    console.log(`${name}: ${first}`);
  }
}
process.exit(refused);
