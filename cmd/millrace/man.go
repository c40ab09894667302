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
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the manual pages",
		Long:  `Write a manual page for each command, in section 1, into a folder.`,
		Example: `  millrace man --dir /usr/local/share/man/man1
  millrace man --dir . && man -l millrace-replay.1`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = command(func(context.Context, []string) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("manual pages: %w", err)
		}
		root := cmd.Root()
		root.DisableAutoGenTag = true // the same source gives the same pages
		head := &doc.GenManHeader{Section: "1", Source: "millrace " + thisBuild().Version, Manual: "Millrace"}
		if err := doc.GenManTree(root, head, dir); err != nil {
			return fmt.Errorf("manual pages: %w", err)
		}
		c.printf("manual pages are in %s\n", dir)
		return nil
	})
	cmd.Flags().StringVar(&dir, "dir", ".", "folder to write to, made when it is missing")
	return cmd
}
