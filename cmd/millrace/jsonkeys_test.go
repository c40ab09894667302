package main

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/gateway/defence"
	"github.com/millrace/millrace/internal/app/collectiveperf"
	"github.com/millrace/millrace/internal/app/convert"
	"github.com/millrace/millrace/internal/app/doctor"
	"github.com/millrace/millrace/internal/app/kernbench"
	"github.com/millrace/millrace/internal/app/rdmaperf"
	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/internal/app/rulefile"
	"github.com/millrace/millrace/internal/app/stackd"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/inspection"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tcp"
)

// TestJSONKeysAreAsRecorded holds the promise of --json: keys may be added to testdata/json-keys.txt. One that
// is renamed or removed needs another schemaVersion.
func TestJSONKeysAreAsRecorded(t *testing.T) {
	var s strings.Builder
	for _, d := range []struct {
		command  string
		document any
	}{
		{"bench kern", kernbench.Report{}},
		{"doctor", doctor.Report{}},
		{"filter check", rulefile.Check{}},
		{"filter match", ExprMatches{}},
		{"filter inspect", replay.AlertEvent{}},
		{"forward", Forwarded{}},
		{"filter attach", attachResult{}},
		{"filter list", filterList{}},
		{"filter load", ebpf.Object{}},
		{"filter map dump", filterEntries{}},
		{"filter map update", filterUpdated{}},
		{"filter replace", ebpf.Replaced{}},
		{"filter stats", filterStats{}},
		{"filter unload", filterUnloaded{}},
		{"gateway", daemon.Summary{}},
		{"gateway cache list", l7control.CacheList{}},
		{"gateway cache purge", admin.CachePurged{}},
		{"gateway cache stats", l7control.CacheStatuses{}},
		{"gateway check", checkResult{}},
		{"gateway convert", convert.Report{}},
		{"gateway connections", l4control.Connection{}},
		{"gateway defence list", defence.Status{}},
		{"gateway reload", admin.Changes{}},
		{"gateway route", l7control.Explanation{}},
		{"gateway rules", inspection.Status{}},
		{"gateway status", admin.Status{}},
		{"gateway top", admin.Top{}},
		{"get", getReport{}},
		{"net addr", addrList{}},
		{"net neigh", neighList{}},
		{"net route", routeList{}},
		{"net sockets", stackd.Sockets{}},
		{"net stats", stackd.Stats{}},
		{"replay", replay.Report{}},
		{"replay --eve", replay.FlowEvent{}},
		{"replay --verify", replay.Verification{}},
		{"stack up --check", stackCheckResult{}},
		{"version", Build{}},
		{"collective bench", collectiveperf.Result{}},
		{"collective doctor", collectiveperf.Machine{}},
		{"collective plan", collectivePlan{}},
		{"rdma bw", rdmaperf.Bandwidth{}},
		{"rdma lat", rdmaperf.Latency{}},
		{"rdma show", rdma.Report{}},
		{"ws", wsMessage{}},
	} {
		fmt.Fprintf(&s, "%s:\n", d.command)
		writeKeys(&s, reflect.TypeOf(d.document), "  ")
	}
	s.WriteString("net stats, in tcp:\n")
	for i, fields := 0, reflect.TypeFor[tcp.Stats](); i < fields.NumField(); i++ {
		fmt.Fprintf(&s, "  %s\n", socket.SnakeCase(fields.Field(i).Name))
	}
	s.WriteString("net stats, in programs.counters:\n")
	for i, fields := 0, reflect.TypeFor[shim.Stats](); i < fields.NumField(); i++ {
		if f := fields.Field(i); f.Name != "Users" {
			fmt.Fprintf(&s, "  %s\n", socket.SnakeCase(f.Name))
		}
	}
	golden(t, "json-keys.txt", s.String())
}

var textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()

// writeKeys writes the keys of a type as encoding/json has them, a line each.
func writeKeys(s *strings.Builder, t reflect.Type, indent string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.Implements(textMarshaler) {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case name == "" && f.Anonymous:
			writeKeys(s, f.Type, indent)
		case name == "":
			fmt.Fprintf(s, "%s%s: a field without a key\n", indent, f.Name)
		default:
			fmt.Fprintf(s, "%s%s\n", indent, name)
			writeKeys(s, f.Type, indent+"  ")
		}
	}
}
