// In a component the host writes the lines.
export { write } from "transom:plugin/log@0.1.0";
