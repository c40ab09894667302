//go:build waf

package main

import "github.com/millrace/millrace/cmd/coraza"

func init() { firewall = coraza.Compile }
