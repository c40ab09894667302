package heapfloor

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// available returns the bytes of memory that the process may have: of the machine, or of its control group and the groups above it,
// which is less (cgroups(7)). 0 is unknown. root is the root of the file system.
func available(root fs.FS) (least uint64) {
	text := func(file string) string {
		raw, err := fs.ReadFile(root, file)
		if err != nil { // the file's absence is no limit
			return ""
		}
		return strings.TrimSpace(string(raw))
	}
	bound := func(number string, unit uint64) {
		if n, err := strconv.ParseUint(number, 10, 64); err == nil && n > 0 && (least == 0 || n*unit < least) {
			least = n * unit
		}
	}
	if _, rest, ok := strings.Cut(text("proc/meminfo"), "MemTotal:"); ok {
		if fields := strings.Fields(rest); len(fields) > 0 {
			bound(fields[0], 1<<10)
		}
	}
	bound(text("sys/fs/cgroup/memory/memory.limit_in_bytes"), 1) // version 1
	_, own, _ := strings.Cut(text("proc/self/cgroup"), "0::")
	own, _, _ = strings.Cut(own, "\n")
	const groups = "sys/fs/cgroup"
	for dir := path.Join(groups, own); strings.HasPrefix(dir, groups); dir = path.Dir(dir) {
		bound(text(dir+"/memory.max"), 1)
	}
	return least
}
