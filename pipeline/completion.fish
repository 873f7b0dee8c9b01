# inductor-debug: completion for fish. Install: inductor-debug completion fish | source   in config.fish
function __inductor_debug_module
    string match -q -- '* -m pipeline *' (commandline -cp)
end
function __inductor_debug_reply
    $argv fish (commandline -cp) 2>/dev/null
end
complete -c inductor-debug -a '(__inductor_debug_reply (commandline -opc)[1] complete)'
for interpreter in python python3
    set -l module '(__inductor_debug_reply (commandline -opc)[1] -m inductor_debug complete)'
    complete -c $interpreter -n __inductor_debug_module -a $module
end
