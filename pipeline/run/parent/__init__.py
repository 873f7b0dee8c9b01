"""Worker processes as their parent has them: started, watched, ended."""
