// Command millrace is the one program of Millrace: it examines the machine (doctor), replays captures
// through the packet path (replay), bridges two devices (forward), runs the load balancer (gateway) and a
// host (stack), talks to WebSocket servers (ws), and measures the batch engine (bench). It only wires: each command is one file that reads
// flags, opens the parts and prints the results. The packages do the work.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], terminal(os.Stdout, os.Stderr))
	stop()
	os.Exit(code)
}

// version is set by -ldflags "-X main.version=1.2.3"; without it the module's version is used.
var version string

// Build is the JSON form of `version`.
type Build struct {
	Version  string `json:"version"`  // "devel" outside of a release
	Commit   string `json:"commit"`   // of the source, "" where it was not built from a checkout
	Modified bool   `json:"modified"` // the checkout had changes that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"` // operating system and architecture
	Vector   string `json:"vector"`   // instructions that the CPU engine uses here
	GPU      string `json:"gpu"`      // "cuda", or "none" of the static program
	WAF      string `json:"waf"`      // engine and rule set of the key waf, with their versions; "none" but of millrace-waf
}

// thisBuild returns the build information of this binary.
func thisBuild() Build {
	b := Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	b.GPU, b.WAF = "none", "none"
	if cuda.Linked() {
		b.GPU = "cuda"
	}
	b.Vector = gpukern.NewCPU(gpukern.Config{}).Info().Device
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; b.Version == "" && v != "(devel)" {
		b.Version = v
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	if firewall != nil {
		b.WAF = firewallOf(info.Deps)
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// firewallOf returns the engine of firewalls and its rule set, of the modules that the program was built of.
func firewallOf(modules []*debug.Module) string {
	var parts []string
	for _, m := range modules {
		switch m.Path {
		case "github.com/corazawaf/coraza/v3":
			parts = append(parts, "coraza "+m.Version)
		case "github.com/corazawaf/coraza-coreruleset/v4":
			parts = append(parts, "crs "+m.Version)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// gpuText explains Build.GPU.
var gpuText = map[string]string{"cuda": "cuda (linked dynamically)", "none": "none (static)"}

func newVersion(c *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and platform",
		Long: `Print version, commit, compiler, platform, the vector instructions in use, and
whether the program can use GPUs: "cuda" (linked dynamically, with libc) or "none"
(static), and the engine and rules of web application firewalls, which the program
millrace-waf has.

--json prints one object: schema, version, commit, modified, go, platform, vector,
gpu, waf.`,
		Example: `  millrace version
  millrace version --json`,
		Args: cobra.NoArgs,
		RunE: command(func(context.Context, []string) error {
			b := thisBuild()
			if asJSON {
				return c.json(b)
			}
			commit := b.Commit
			if commit == "" {
				commit = "unknown"
			}
			if b.Modified {
				commit += " with changes"
			}
			c.printf("millrace %s\ncommit   %s\ngo       %s\nplatform %s\nvector   %s\ngpu      %s\nwaf      %s\n",
				b.Version, commit, b.Go, b.Platform, b.Vector, gpuText[b.GPU], b.WAF)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
