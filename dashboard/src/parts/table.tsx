/** A table of any length (virtual scrolling): the page contains only the rows in view and a few more. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Empty } from "./basics";

export interface Column<T> {
  title: string;
  /** A CSS grid track, such as `2fr` or `7rem`. */
  width: string;
  cell: (row: T) => ComponentChildren;
  end?: boolean;
}

const ROW_HEIGHT = 34;
/** Number of rows that the page contains before and after those in view. */
const EXTRA_ROWS = 8;
/** Maximum number of rows, because browsers limit the height of an element; longer lists end with a note. */
const MAX_ROWS = 400_000;

export function Table<T>(props: {
  label: string;
  rows: readonly T[];
  columns: Column<T>[];
  id: (row: T) => string;
  empty: string;
  selected?: string;
  /** Number of rows in view. */
  height?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const { columns, label } = props;
  const rows = props.rows.length > MAX_ROWS ? props.rows.slice(0, MAX_ROWS) : props.rows;
  const inView = props.height ?? 16;
  const height = Math.min(rows.length, inView) * ROW_HEIGHT;
  const first = Math.max(0, Math.min(Math.floor(top / ROW_HEIGHT), rows.length - inView) - EXTRA_ROWS);
  const last = Math.min(rows.length, first + inView + 2 * EXTRA_ROWS);
  const tracks = { gridTemplateColumns: columns.map(({ width }) => `minmax(0, ${width})`).join(" ") };

  // A shorter list may end before the old scroll position.
  useEffect(() => {
    if (box.current) setTop(box.current.scrollTop);
  }, [rows.length]);

  if (rows.length === 0) return <Empty>{props.empty}</Empty>;
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={rows.length + 1}>
      <div role="rowgroup">
        <div class="row head" role="row" aria-rowindex={1} style={tracks}>
          {columns.map(({ title, end }) => (
            <span role="columnheader" class={end ? "end" : ""} key={title}>
              {title}
            </span>
          ))}
        </div>
      </div>
      <div
        class="scroll"
        role="rowgroup"
        tabIndex={0}
        aria-label={`${label}, rows`}
        ref={box}
        style={{ height: `${height}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <div class="space" role="presentation" style={{ height: `${rows.length * ROW_HEIGHT}px` }}>
          {rows.slice(first, last).map((row, index) => (
            <div
              key={props.id(row)}
              class={props.id(row) === props.selected ? "row selected" : "row"}
              role="row"
              aria-rowindex={first + index + 2}
              style={{ ...tracks, transform: `translateY(${(first + index) * ROW_HEIGHT}px)` }}
            >
              {columns.map(({ title, cell, end }) => (
                <span role="cell" class={end ? "end" : ""} key={title}>
                  {cell(row)}
                </span>
              ))}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
