# What the `study` of each paper does: every named sweep whose data are here, a report on each, and a table of all.
# To be sourced by it; it sets `small`, the sweeps to run where none is named, and `run_file`, whose a sweep is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-sweeps/$(basename "$here")}
PATH="$here/../../../.venv/bin:$PATH"
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=("${small[@]}")
done=()
for name in "${names[@]}"; do
  if cutlayer check "$here/$(run_file "$name").yaml" > /dev/null; then
    cutlayer sweep "$here/sweeps/$name.yaml" --out "$out/$name"
    cutlayer report "$out/$name"
    done+=("$out/$name")
  else
    echo "study: $name is left out, see above; README.md says where its data come from" >&2
  fi
done
[[ ${#done[@]} -eq 0 ]] || python "$here/figures.py" "${done[@]}"
