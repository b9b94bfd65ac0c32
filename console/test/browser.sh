#!/usr/bin/env bash
# Tries the page in Debian's chromium: first against the real server as a new
# user would, then against a stand-in that shows faults on demand. Needs Go,
# Node.js and chromium; prints where it leaves its screenshots.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v chromium >/dev/null || { echo 'browser.sh: chromium is not installed' >&2; exit 1; }
[[ -d node_modules/playwright-core ]] || npm ci
(cd ../client/ts && [[ -d node_modules/typescript ]] || npm ci)
npm run build

work=$(mktemp -d)
server=''
cleanup() {
  if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$work/profile" "$work/data" "$work/parley"
}
trap cleanup EXIT

(cd .. && go build -o "$work/parley" ./cmd/parley)
export PARLEY_BINARY=$work/parley PARLEY_WORK=$work
echo "browser.sh: screenshots go to $work/shots"
mkdir -p "$work/shots"
node --test --test-concurrency=1 test/dev.test.mjs test/faults.test.mjs
