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
export function chosen(files: readonly File[]): PluginFiles | string {
  const expected = "expected NAME.wasm, NAME.toml or both, and NAME.wasm.sig if components are signed";
  let found: PluginFiles | undefined;
  for (const file of files) {
    const kind = KINDS.find(([ending]) => file.name.endsWith(ending));
    if (!kind) return `${file.name} is no file of a plugin: ${expected}`;
    const name = file.name.slice(0, -kind[0].length);
    found ??= { name };
    if (found.name !== name) return `these are files of several plugins, ${found.name} and ${name}: ${expected}`;
    if (found[kind[1]]) return `${file.name} was chosen twice`;
    found[kind[1]] = file;
  }
  if (!found?.component && !found?.manifest) return expected;
  return found;
}

const BLOCK = 512;

/** The header of a file in a tar archive (POSIX ustar). */
export function header(name: string, size: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const put = (at: number, text: string) => block.set(new TextEncoder().encode(text), at);
  put(0, name);
  put(100, "0000644\0");
  put(108, "0000000\0");
  put(116, "0000000\0");
  put(124, `${size.toString(8).padStart(11, "0")}\0`);
  put(136, "00000000000\0");
  // For the checksum, its own field counts as spaces.
  put(148, "        ");
  put(156, "0");
  put(257, "ustar\0");
  put(263, "00");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${sum.toString(8).padStart(6, "0")}\0 `);
  return block;
}

/** The body of the request. The manifest comes first, because its limits apply to the files that follow. */
export function body(files: PluginFiles): Blob {
  const { name, component, manifest, signature } = files;
  // The Blob has no type, because the daemon rejects content types that a form of another site could send.
  if (component && !manifest && !signature) return new Blob([component]);
  const parts: BlobPart[] = [];
  for (const [file, ending] of [[manifest, ".toml"], [signature, ".wasm.sig"], [component, ".wasm"]] as const) {
    if (!file) continue;
    parts.push(header(name + ending, file.size), file, new Uint8Array((BLOCK - (file.size % BLOCK)) % BLOCK));
  }
  return new Blob([...parts, new Uint8Array(2 * BLOCK)]);
}
