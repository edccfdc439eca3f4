/** A plugin's files in the form that the daemon accepts: a single component, or a tar archive. */

export interface PluginFiles {
  name: string;
  component?: File;
  manifest?: File;
  signature?: File;
}

const KINDS: [string, "component" | "manifest" | "signature"][] = [
  [".wasm.sig", "signature"],
  [".wasm", "component"],
  [".toml", "manifest"],
];

/** Sorts the files of one plugin; returns a message if they are not files of one plugin. */
export function toPluginFiles(files: readonly File[]): PluginFiles | string {
  const expected = "expected NAME.wasm, NAME.toml or both, and NAME.wasm.sig if components are signed";
  let pluginFiles: PluginFiles | undefined;
  for (const file of files) {
    const kind = KINDS.find(([ending]) => file.name.endsWith(ending));
    if (!kind) return `${file.name} is not a plugin file: ${expected}`;
    const name = file.name.slice(0, -kind[0].length);
    pluginFiles ??= { name };
    if (pluginFiles.name !== name) return `these are files of several plugins, ${pluginFiles.name} and ${name}: ${expected}`;
    if (pluginFiles[kind[1]]) return `${file.name} was chosen twice`;
    pluginFiles[kind[1]] = file;
  }
  if (!pluginFiles?.component && !pluginFiles?.manifest) return expected;
  return pluginFiles;
}

const BLOCK = 512;

/** The header of a file in a tar archive (POSIX ustar). */
export function tarHeader(name: string, size: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const write = (at: number, text: string) => block.set(new TextEncoder().encode(text), at);
  write(0, name);
  write(100, "0000644\0");
  write(108, "0000000\0");
  write(116, "0000000\0");
  write(124, `${size.toString(8).padStart(11, "0")}\0`);
  write(136, "00000000000\0");
  // For the checksum, its own field counts as spaces.
  write(148, "        ");
  write(156, "0");
  write(257, "ustar\0");
  write(263, "00");
  const sum = block.reduce((total, byte) => total + byte, 0);
  write(148, `${sum.toString(8).padStart(6, "0")}\0 `);
  return block;
}

/** The body of the request. The manifest comes first, because its limits apply to the files that follow. */
export function requestBody(files: PluginFiles): Blob {
  const { name, component, manifest, signature } = files;
  // The Blob has no type, because the daemon rejects content types that a form of another site could send.
  if (component && !manifest && !signature) return new Blob([component]);
  const parts: BlobPart[] = [];
  for (const [file, ending] of [[manifest, ".toml"], [signature, ".wasm.sig"], [component, ".wasm"]] as const) {
    if (!file) continue;
    parts.push(tarHeader(name + ending, file.size), file, new Uint8Array((BLOCK - (file.size % BLOCK)) % BLOCK));
  }
  return new Blob([...parts, new Uint8Array(2 * BLOCK)]);
}
