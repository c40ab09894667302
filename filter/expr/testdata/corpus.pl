# Writes the expressions of libpcap's own tests as JSON: perl corpus.pl LIBPCAP BUILD OUTPUT.
# LIBPCAP is the source tree, BUILD where it was built. The lists in testprogs/TESTrun are Perl; this
# evaluates the file up to the code that runs them, and drops the programs that they expect, since
# only the behaviour is compared.
use strict;
use JSON::PP;
my ($source, $build, $output) = @ARGV;
open my $in, '<', "$source/testprogs/TESTrun" or die "TESTrun: $!";
my $code = '';
while (<$in>) {
	last if /^sub accept_test_label/;
	$code .= $_;
}
close $in;
my %links;
open my $dlt, '<', "$source/pcap/dlt.h" or die "dlt.h: $!";
while (<$dlt>) {
	# Below 104 the numbers depend on the system; the test knows those.
	$links{$1} = $2 + 0 if /^\s*#\s*define\s+DLT_(\w+)\s+(\d+)\b/ && $2 >= 104;
	$links{$1} = $links{$2} if /^\s*#\s*define\s+DLT_(\w+)\s+DLT_(\w+)/ && exists $links{$2};
}
close $dlt;
my $script = "$source/testprogs/millrace-corpus.pl";
open my $out, '>', $script or die "$script: $!";
print $out $code, <<'END';
use JSON::PP;
for my $block (@filter_accept_blocks) { delete @$block{qw(opt unopt optunopt)} }
open my $json, '>', $ENV{CORPUS_OUTPUT} or die;
print $json JSON::PP->new->canonical->encode({
	accept => \@filter_accept_blocks, apply => \@filter_apply_blocks, reject => \@filter_reject_tests,
	links => JSON::PP->new->decode($ENV{CORPUS_LINKS}),
});
close $json;
exit 0;
END
close $out;
$ENV{CORPUS_OUTPUT} = $output;
$ENV{CORPUS_LINKS} = JSON::PP->new->encode(\%links);
$ENV{CONFIG_H} = "$build/config.h";
my $failed = system 'perl', $script;
unlink $script;
exit($failed != 0);
