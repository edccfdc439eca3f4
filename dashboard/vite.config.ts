import { defineConfig } from "vite";

/** The admin port of a running daemon, for `npm run dev`. */
const daemon = process.env.TRANSOM_ADMIN ?? "http://127.0.0.1:9990";

export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    // Names stay the same: the daemon lists its files, and the checked-in build is compared.
    rollupOptions: {
      output: {
        entryFileNames: "dashboard.js",
        assetFileNames: "dashboard[extname]",
        inlineDynamicImports: true,
      },
    },
    target: "es2020",
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    reportCompressedSize: true,
  },
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  server: {
    proxy: {
      "^/(v1|metrics)": {
        target: daemon,
        changeOrigin: true,
        // The daemon refuses requests of pages from elsewhere, such as from the server of vite.
        configure: (proxy) =>
          proxy.on("proxyReq", (request) => ["origin", "sec-fetch-site"].forEach((name) => request.removeHeader(name))),
      },
    },
  },
});
