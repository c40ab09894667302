package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	l7control "github.com/millrace/millrace/l7/control"
)

func newGatewayCache(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Show caches, list what they have, and purge it",
		Long: `Show the caches of a running gateway with "caches" in its configuration, list the
responses that they have, and remove some.`,
		Example: `  millrace gateway cache stats
  millrace gateway cache list --prefix https://shop.example.org/img/
  millrace gateway cache purge https://shop.example.org/style.css`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newCacheStats(c), newCacheList(c), newCachePurge(c))
	return cmd
}

func newCacheStats(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "stats",
		Short: "Show how caches are used",
		Long: `Show the memory and the number of responses of each cache, and what requests found.

--json prints one object: schema, caches (list of name, bytes, memory, objects, requests
by result: hit, stale, revalidated, collapsed, miss, bypass; refreshes, stored, evicted,
invalidated, full; disk, where there is one: dir, bytes, limit, objects, loading, reads,
written, evicted, full, damaged, read_errors, write_errors).`,
		Example: `  millrace gateway cache stats --json | jq '.caches[].requests'`,
		Args:    exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		st, err := g.Caches(ctx)
		switch {
		case err != nil:
			return err
		case f.json:
			return c.jsonLine(st)
		case len(st.Caches) == 0:
			c.printf("the configuration has no caches\n")
			return nil
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "CACHE\tBYTES\tOF\tOBJECTS\tHITS\tSTALE\tREVALIDATED\tCOLLAPSED\tMISSES\tBYPASSED\tEVICTED")
		for i := range st.Caches {
			k := &st.Caches[i]
			r := k.Requests
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, group(uint64(k.Bytes)), group(uint64(k.Memory)), group(uint64(k.Objects)),
				group(r["hit"]), group(r["stale"]), group(r["revalidated"]), group(r["collapsed"]), group(r["miss"]), group(r["bypass"]), group(k.Evicted))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		return c.showCacheDisks(&st)
	})
}

// showCacheDisks shows the second levels of caches, if there are any.
func (c *console) showCacheDisks(st *l7control.CacheStatuses) error {
	w, shown := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0), false
	for i := range st.Caches {
		k := &st.Caches[i]
		d := k.Disk
		if d == nil {
			continue
		}
		if !shown {
			shown = true
			fmt.Fprintln(w, "\nCACHE\tON DISK\tOF\tOBJECTS\tREAD\tWRITTEN\tEVICTED\tDROPPED\tDAMAGED\tERRORS\tFOLDER")
		}
		dir := d.Dir
		if d.Loading {
			dir += " (being read)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, group(uint64(d.Bytes)), group(uint64(d.Limit)), group(uint64(d.Objects)),
			group(d.Reads), group(d.Written), group(d.Evicted), group(d.Full), group(d.Damaged), group(d.ReadErrors+d.WriteErrors), dir)
	}
	return w.Flush()
}

func newCacheList(c *console) *cobra.Command {
	var name, prefix string
	var limit int
	cmd := newControl(c, &cobra.Command{
		Use:   "list",
		Short: "List stored responses",
		Long: `List responses that caches have, with their rule, status, memory, age, and for how long
they are still fresh.

--json prints one object: schema, objects (list of cache, url, rule, status, bytes,
age_seconds, fresh_seconds, content_bytes, disk), more (how many are left out).`,
		Example: `  millrace gateway cache list --prefix https://shop.example.org/img/ --limit 1000`,
		Args:    exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if limit < 1 {
			return usage("--limit is %d; it must be 1 or more", limit)
		}
		list, err := g.CacheObjects(ctx, name, prefix, limit)
		switch {
		case err != nil:
			return err
		case f.json:
			return c.jsonLine(list)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "URL\tCACHE\tRULE\tSTATUS\tBYTES\tAGE\tFRESH")
		for i := range list.Objects {
			o := &list.Objects[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", o.URL, o.Cache, o.Rule, o.Status, group(uint64(o.Bytes)), wholeSeconds(o.Age), wholeSeconds(o.Left))
		}
		if list.More > 0 {
			fmt.Fprintf(w, "%s more\n", group(uint64(list.More)))
		}
		return w.Flush()
	})
	fl := cmd.Flags()
	fl.StringVar(&name, "cache", "", "cache (default: all)")
	fl.StringVar(&prefix, "prefix", "", "how URLs begin")
	fl.IntVar(&limit, "limit", 50, "responses to list at most")
	for _, flag := range []string{"cache", "prefix", "limit"} {
		complete(cmd, flag, cobra.NoFileCompletions)
	}
	return cmd
}

// wholeSeconds returns a number of seconds as a duration.
func wholeSeconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

func newCachePurge(c *console) *cobra.Command {
	var p admin.CachePurge
	cmd := &cobra.Command{
		Use:   "purge URL",
		Short: "Remove stored responses",
		Long: `Remove all that caches have of a URL, which is the one that clients ask for: scheme, host
and port, path, and query. With --prefix it is how URLs begin, and "" is all. Responses
that are on their way from a backend are not stored either.

--json prints one object: schema, purged (how many responses).`,
		Example: `  millrace gateway cache purge https://shop.example.org/style.css
  millrace gateway cache purge --prefix https://shop.example.org/img/`,
		Args:              exactly("URL"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	newControl(c, cmd, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		p.URL = args[0]
		done, err := g.PurgeCache(ctx, p)
		switch {
		case err != nil:
			return err
		case f.json:
			return c.jsonLine(done)
		}
		c.printf("%s responses are removed\n", group(uint64(done.Purged)))
		return nil
	})
	cmd.Flags().BoolVar(&p.Prefix, "prefix", false, "URL is how those of several begin")
	cmd.Flags().StringVar(&p.Cache, "cache", "", "cache (default: all)")
	complete(cmd, "cache", cobra.NoFileCompletions)
	return cmd
}
