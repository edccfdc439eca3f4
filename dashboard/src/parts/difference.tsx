/** The lines that differ between two texts. */

import type { Line } from "../lib/compare";
import { displayText } from "../lib/format";

const CLASSES = { "+": "added", "-": "removed", " ": "", "…": "dull" };
const WORDS = { "+": "added", "-": "removed", " ": "", "…": "" };

export function Difference({ lines }: { lines: Line[] }) {
  return (
    <pre class="difference" tabIndex={0} aria-label="Differences">
      {lines.map(({ sign, text }, at) => (
        <span key={at} class={CLASSES[sign]} title={WORDS[sign]}>
          {sign} {displayText(text, 2000)}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
