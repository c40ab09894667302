package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan(c *console) *cobra.Command {
	var dir string
	var section int
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the manual pages",
		Long: `Write manual pages into a folder: one for each command, in section 1, and one for
each configuration file, in section 5.`,
		Example: `  millrace man --section 1 --dir /usr/local/share/man/man1
  millrace man --section 5 --dir /usr/local/share/man/man5
  millrace man --dir . && man -l millrace-replay.1`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = command(func(context.Context, []string) error {
		if section != 0 && section != 1 && section != 5 {
			return usage("--section %d: say 1, 5, or 0 for both", section)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("manual pages: %w", err)
		}
		if section != 5 {
			if err := writeCommandPages(cmd.Root(), dir); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
		}
		if section != 1 {
			if err := writeConfigPages(dir); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
		}
		c.printf("manual pages are in %s\n", dir)
		return nil
	})
	cmd.Flags().IntVar(&section, "section", 0, "only pages of this section, 1 or 5 (0: both)")
	cmd.Flags().StringVar(&dir, "dir", ".", "folder to write to, made when it is missing")
	return cmd
}

// writeCommandPages writes the manual pages of the commands, section 1.
func writeCommandPages(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true // the same source gives the same pages
	head := &doc.GenManHeader{Section: "1", Source: "millrace " + thisBuild().Version, Manual: "Millrace"}
	return doc.GenManTree(root, head, dir)
}
