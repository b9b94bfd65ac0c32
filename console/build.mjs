// Bundles the page into dist/, which the Go package embeds. The output depends on the sources alone.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

process.chdir(dirname(fileURLToPath(import.meta.url)));
await rm("dist", { recursive: true, force: true });
await mkdir("dist/assets", { recursive: true });

await build({
  entryPoints: { app: "src/main.ts", style: "src/style.css" },
  outdir: "dist/assets",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  legalComments: "none",
  logLevel: "warning",
});

// The names stay plain so that a change shows as a change of two files; the hash keeps a browser from mixing builds.
let html = await readFile("src/index.html", "utf8");
for (const name of ["app.js", "style.css"]) {
  const hash = createHash("sha256").update(await readFile(`dist/assets/${name}`)).digest("hex");
  html = html.replace(`/assets/${name}`, `/assets/${name}?v=${hash.slice(0, 12)}`);
}
await writeFile("dist/index.html", html);
