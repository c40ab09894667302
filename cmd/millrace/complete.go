package main

import (
	"net"

	"github.com/spf13/cobra"
)

// completeWords offers fixed words for the values of a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	complete(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeFiles offers files with one of the endings for the values of a flag.
func completeFiles(cmd *cobra.Command, flag string, endings ...string) {
	complete(cmd, flag, cobra.FixedCompletions(endings, cobra.ShellCompDirectiveFilterFileExt))
}

// complete sets what is offered for the values of a flag.
func complete(cmd *cobra.Command, flag string, offer cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, offer); err != nil {
		panic(err) // no such flag
	}
}

// interfaceNames offers the machine's interfaces.
func interfaceNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, in := range all {
		names = append(names, in.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// twoInterfaces offers the interfaces as long as fewer than two are named.
func twoInterfaces(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) >= 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return interfaceNames(cmd, args, prefix)
}
