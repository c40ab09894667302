package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/filter/ebpf"
)

func newFilterMap(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Read and write the maps of loaded objects",
		Long: `Read and write maps as JSON by their BTF types: structs are objects, arrays are lists,
char arrays are strings where they are text, enums are the names of their values,
numbers of 128 bits and pointers are strings in hexadecimal, __be32 are IPv4 addresses.
Without BTF keys and values are strings of hexadecimal bytes. A map per CPU has a list of values.

A map is named OBJECT/MAP, id:N or by the path of a pin.`,
		Example: `  millrace filter map dump count/hits
  millrace filter map update count/hits --key 0 --value 7`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newFilterMapDump(c), newFilterMapUpdate(c), newFilterMapDelete(c))
	return cmd
}

// filterEntries is the result of map dump --json, and what map update --file reads.
type filterEntries struct {
	Map     string       `json:"map"`
	Entries []ebpf.Entry `json:"entries"`
}

func newFilterMapDump(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump MAP",
		Short: "Print the entries of a map",
		Long: `Print the entries of a map, one JSON object a line with key and value.

--json prints one object: schema, map and entries (list: key, value).`,
		Example: `  millrace filter map dump count/hits
  millrace filter map dump id:12 --json`,
		Args: exactly("map"),
	}
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) error {
		all := filterEntries{Map: args[0], Entries: []ebpf.Entry{}}
		err := s.DumpMap(args[0], func(e ebpf.Entry) error {
			if f.json {
				all.Entries = append(all.Entries, e)
				return nil
			}
			line, err := json.Marshal(e)
			c.printf("%s\n", line)
			return err
		})
		if err != nil || !f.json {
			return err
		}
		return c.json(all)
	})
}

// filterUpdated is the result of map update --json and map delete --json.
type filterUpdated struct {
	Map     string `json:"map"`
	Entries int    `json:"entries"`
}

func newFilterMapUpdate(c *console) *cobra.Command {
	var key, value, file, when string
	cmd := &cobra.Command{
		Use:   "update MAP --key JSON --value JSON | --file FILE",
		Short: "Write entries of a map",
		Long: `Write one entry, or the entries of a file as map dump --json prints them ("-" is
standard input). Of an entry that exists, members of a struct that are not named keep
their values.

--json prints one object: schema, map and entries (how many were written).`,
		Example: `  millrace filter map update count/hits --key 0 --value 7
  millrace filter map dump a/routes --json | millrace filter map update b/routes --file -`,
		Args: exactly("map"),
	}
	cmd.Flags().StringVar(&key, "key", "", "key, in `JSON`")
	cmd.Flags().StringVar(&value, "value", "", "value, in `JSON`")
	cmd.Flags().StringVar(&file, "file", "", "`file` of entries; - is standard input")
	cmd.Flags().StringVar(&when, "when", "always", "write always, only missing keys, or only existing ones")
	completeWords(cmd, "when", "always", "missing", "existing")
	completeFiles(cmd, "file", "json")
	conditions := map[string]ebpf.Condition{"always": ebpf.Always, "missing": ebpf.Missing, "existing": ebpf.Existing}
	check := func() error {
		_, known := conditions[when]
		switch {
		case !known:
			return usage("--when %q: say always, missing or existing", when)
		case file != "" && (key != "" || value != ""):
			return usage("leave --key and --value out with --file")
		case file == "" && (key == "" || value == ""):
			return usage("say --key and --value, or --file")
		}
		return nil
	}
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) (err error) {
		list := []ebpf.Entry{{Key: json.RawMessage(key), Value: json.RawMessage(value)}}
		if file != "" {
			if list, err = readEntries(c, file); err != nil {
				return err
			}
		}
		n, err := s.UpdateMapAll(args[0], list, conditions[when])
		return showUpdated(c, f, filterUpdated{args[0], n}, "written", err)
	}, check)
}

// maxEntries bounds a file of entries, in bytes.
const maxEntries = 1 << 30

// readEntries reads the entries of a file.
func readEntries(c *console, file string) ([]ebpf.Entry, error) {
	in := c.in
	if file != standardInput {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var all filterEntries
	if err := json.NewDecoder(io.LimitReader(in, maxEntries)).Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: entries: %w", inputName(file), err)
	}
	return all.Entries, nil
}

func showUpdated(c *console, f *filterFlags, u filterUpdated, did string, err error) error {
	switch {
	case err != nil && u.Entries > 0:
		return fmt.Errorf("%d entries were %s, then: %w", u.Entries, did, err)
	case err != nil:
		return err
	case f.json:
		return c.json(u)
	}
	c.printf("%s: %s %s\n", u.Map, group(uint64(u.Entries)), did)
	return nil
}

func newFilterMapDelete(c *console) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "delete MAP --key JSON",
		Short: "Delete an entry of a map",
		Long: `Delete the entry of a key.

--json prints one object: schema, map and entries (how many were deleted).`,
		Example: `  millrace filter map delete edge/blocked --key '{"bits": 32, "addr": [192, 0, 2, 1]}'`,
		Args:    exactly("map"),
	}
	cmd.Flags().StringVar(&key, "key", "", "key, in `JSON`")
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) error {
		return showUpdated(c, f, filterUpdated{args[0], 1}, "deleted", s.DeleteKey(args[0], json.RawMessage(key)))
	}, func() error {
		if key == "" {
			return usage("say --key")
		}
		return nil
	})
}

func newFilterUnload(c *console) *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use:   "unload OBJECT",
		Short: "Remove a loaded object",
		Long: `Remove a loaded object from the kernel. An object with an attached program is refused,
unless --detach takes it off the interfaces first.

--json prints one object: schema, object and places (where programs were attached).`,
		Example: `  millrace filter unload drop --detach`,
		Args:    exactly("object"),
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "detach its programs first")
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) error {
		places, err := s.Unload(args[0], detach)
		if err != nil {
			return err
		}
		if f.json {
			return c.json(filterUnloaded{args[0], append([]string{}, places...)})
		}
		for _, p := range places {
			c.printf("detached %s\n", p)
		}
		c.printf("%s is unloaded\n", args[0])
		return nil
	})
}

// filterUnloaded is the result of unload --json.
type filterUnloaded struct {
	Object string   `json:"object"`
	Places []string `json:"places"`
}

func newFilterReplace(c *console) *cobra.Command {
	var opts ebpf.ReplaceOptions
	var verbose bool
	cmd := &cobra.Command{
		Use:   "replace OBJECT OBJECT.o",
		Short: "Replace a loaded object by another file",
		Long: `Load an object file in the place of a loaded object. Wherever a program of the object
is attached, the program of the same name takes its place, with its priority and
actions: a packet meets the old or the new program. Maps of the same name and shape
keep their entries. If anything fails the old object stays.

--json prints one object: schema, object (as load prints it), places, kept_maps and
new_maps.`,
		Example: `  millrace filter replace edge edge-v2.o`,
		Args:    exactly("object", "object file"),
	}
	cmd.Flags().BoolVar(&opts.FreshMaps, "fresh-maps", false, "begin with empty maps")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the whole log of the verifier")
	return filterCommand(c, cmd, func(s *ebpf.Store, f *filterFlags, args []string) error {
		r, err := s.Replace(args[1], args[0], opts)
		if err != nil {
			return loadError(err, verbose)
		}
		if f.json {
			return c.json(r)
		}
		for _, p := range r.Places {
			c.printf("replaced %s\n", p)
		}
		c.printf("%s is %s now; %d of %d maps kept their entries\n", args[0], r.Object.Source, len(r.Kept), len(r.Kept)+len(r.New))
		return nil
	})
}

// filterStats is the result of stats --json.
type filterStats struct {
	Seconds  float64             `json:"seconds"`
	Programs []ebpf.ProgramStats `json:"programs"`
}

func newFilterStats(c *console) *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "stats [INTERFACE]",
		Short: "Count how often attached programs run, and for how long",
		Long: `Have the kernel count the runs of attached programs and their time for --time. Counting
costs each run some tens of nanoseconds. The kernel does not count the components of
a dispatcher one by one: the dispatcher's time includes theirs.

--json prints one object: schema, seconds and programs (list: interface, hook, id,
name, object, runs, time_ns, all_runs, all_time_ns, measured).`,
		Example:           `  millrace filter stats --time 10s eth0`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: interfaceNames,
	}
	cmd.Flags().DurationVar(&interval, "time", time.Second, "how long to count")
	return filterCommandContext(c, cmd, func(ctx context.Context, s *ebpf.Store, f *filterFlags, args []string) error {
		only := ""
		if len(args) > 0 {
			only = args[0]
		}
		list, err := s.Stats(ctx, only, interval)
		if err != nil {
			return err
		}
		if f.json {
			return c.json(filterStats{interval.Seconds(), list})
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		defer w.Flush()
		fmt.Fprintln(w, "INTERFACE\tHOOK\tID\tPROGRAM\tRUNS/S\tNS/RUN\tALL RUNS")
		for _, p := range list {
			rate, each, all := "-", "-", "-"
			if p.Measured {
				rate, all = group(uint64(float64(p.Runs)/interval.Seconds())), group(p.AllRuns)
			}
			if p.Measured && p.Runs > 0 {
				each = fmt.Sprintf("%.0f", float64(p.Time)/float64(p.Runs))
			}
			name := p.Name
			if p.Object != "" {
				name = p.Object
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", p.Interface, p.Hook, p.ID, name, rate, each, all)
		}
		return nil
	}, func() error {
		if interval <= 0 {
			return usage("--time %v: say more than nothing", interval)
		}
		return nil
	})
}
