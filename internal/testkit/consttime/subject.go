package consttime

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// subjects are the functions whose branches can be traced. Each prepares a run with the secret of that number.
var subjects = map[string]func(secret int) (run func()){}

// Subject registers a function, before Main. What run does must be repeatable.
func Subject(name string, prepare func(secret int) (run func())) { subjects[name] = prepare }

// childEnv has "name/secret" in a child.
const childEnv = "MILLRACE_CONSTTIME_CHILD"

// init keeps a child on its first thread, the one that is traced.
func init() {
	if os.Getenv(childEnv) != "" {
		runtime.LockOSThread()
	}
}

// Main is for TestMain: it runs the tests, or the subject if this is a child.
func Main(m *testing.M) int {
	child := os.Getenv(childEnv)
	if child == "" {
		return m.Run()
	}
	name, secret, _ := strings.Cut(child, "/")
	number, err := strconv.Atoi(secret)
	if err != nil || subjects[name] == nil {
		return 1
	}
	debug.SetGCPercent(-1)
	run := subjects[name](number)
	run() // what happens once, and the growth of the stack, is no part of the trace
	mark()
	run()
	mark()
	return 0
}
