package programs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// redisUnits are those of redis's own tests in which the network has a part: its protocol, clients and their buffers,
// blocking, timeouts and closes, replication, failover, the cluster's bus. Data types and files are left out, and
// integration/replication and replication-psync, which take four minutes each.
var redisUnits = []string{
	"unit/auth", "unit/protocol", "unit/introspection", "unit/introspection-2", "unit/other", "unit/pubsub", "unit/pubsubshard", "unit/querybuf",
	"unit/pendingquerybuf", "unit/networking", "unit/limits", "unit/obuf-limits", "unit/client-eviction", "unit/replybufsize", "unit/pause", "unit/wait",
	"unit/tracking", "unit/shutdown", "unit/quit", "unit/multi", "integration/replication-2", "integration/replication-3",
	"integration/replication-4", "integration/replication-buffer", "integration/block-repl", "integration/psync2-reg",
	"integration/failover", "integration/redis-cli", "integration/redis-benchmark", "integration/shutdown", "unit/cluster", "unit/cluster/misc", "unit/cluster/links",
}

func redisPrograms() []program {
	return []program{suite{
		program: program{name: "redis tests", version: []string{"redis-server", "--version"}, what: "redis's own `runtest`: " + strings.Join(redisUnits, ", ")},
		parts:   redisUnits, part: redisUnit,
	}.row()}
}

// redisInstalled are the programs of the source tree, which the tests start: they are links to those that are installed.
var redisInstalled = []string{"redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb", "redis-sentinel"}

// redisUnit runs one unit, with a copy of the source: it writes there.
func redisUnit(t *testing.T, b *bed, unit string) verdicts {
	t.Helper()
	source := os.Getenv("MILLRACE_REDIS")
	needsFile(t, filepath.Join(source, "tests", "test_helper.tcl"), "make interop-shim fetches redis's source")
	needs(t, "tclsh8.6")
	dir, err := os.MkdirTemp(b.dir, "redis")
	must(t, err)
	runHere(t, "cp", "-r", filepath.Join(source, "tests"), dir)
	must(t, os.Mkdir(filepath.Join(dir, "src"), 0o755))
	for _, name := range redisInstalled {
		must(t, os.Symlink("/usr/bin/"+name, filepath.Join(dir, "src", name)))
	}
	runHere(t, "cp", filepath.Join(source, "redis.conf"), filepath.Join(source, "sentinel.conf"), dir)
	cmd := b.host.command("tclsh8.6", "tests/test_helper.tcl", "--clients", "1", "--single", unit)
	cmd.Dir = dir
	out, code := b.host.begin(t, cmd).finish(t, 8*time.Minute)
	v := readRedis(unit, out)
	if code != 0 && len(v.failures()) == 0 {
		v[unit+" ends"] = testFailed
	}
	if failed := v.failures(); len(failed) > 0 {
		t.Logf("%s", last(out, 3000))
	}
	return v
}

var (
	redisLine  = regexp.MustCompile(`(?m)^\[(ok|err|skip|ignore|exception)\]: (.*?)(?: \([0-9]+ ms\))?$`)
	redisColor = regexp.MustCompile("\x1b\\[[0-9;]*m")
	redisWhere = regexp.MustCompile(` in tests/[a-z0-9/_-]+\.tcl$`)
)

// readRedis reads what runtest prints.
func readRedis(unit, out string) verdicts {
	v := verdicts{}
	for _, m := range redisLine.FindAllStringSubmatch(redisColor.ReplaceAllString(out, ""), -1) {
		name := unit + ": " + redisWhere.ReplaceAllString(m[2], "")
		switch m[1] {
		case "ok":
			if v[name] == "" {
				v[name] = testPassed
			}
		case "skip", "ignore":
			v[name] = testSkipped
		case "err":
			v[name] = testFailed
		case "exception":
			v[unit+" ends"] = testFailed
		}
	}
	return v
}
