# inductor-debug: completion for bash. Install: eval "$(inductor-debug completion bash)" in ~/.bashrc
_inductor_debug_reply() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <("$@" bash "$COMP_LINE" "$COMP_POINT" "$COMP_WORDBREAKS" 2>/dev/null)
}
_inductor_debug() {
    _inductor_debug_reply "$1" complete
    if [ ${#COMPREPLY[@]} -gt 0 ]; then compopt -o nospace 2>/dev/null; fi
}
_inductor_debug_python() {
    case " ${COMP_LINE:0:COMP_POINT}" in
        *" -m pipeline "*)
            _inductor_debug_reply "$1" -m inductor_debug complete
            if [ ${#COMPREPLY[@]} -gt 0 ]; then compopt -o nospace 2>/dev/null; fi ;;
        *)
            if [ -n "$_inductor_debug_python_before" ]; then "$_inductor_debug_python_before" "$@"; fi ;;
    esac
}
if declare -F _completion_loader >/dev/null; then _completion_loader python 2>/dev/null; fi
_inductor_debug_python_before=$(complete -p python 2>/dev/null | sed -n 's/.* -F \([^ ]*\).*/\1/p')
if [ "$_inductor_debug_python_before" = _inductor_debug_python ]; then _inductor_debug_python_before=; fi
complete -o bashdefault -o default -F _inductor_debug inductor-debug
complete -o bashdefault -o default -F _inductor_debug_python python python3
